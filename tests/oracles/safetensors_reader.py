"""Reads a safetensors file as the format's description says, and nothing else: {name: (dtype, shape, values)}."""
import json
import math
import struct

LETTERS = {"F32": "f", "F64": "d", "I64": "q", "I32": "i", "U8": "B", "I8": "b", "BOOL": "?"}


def read(path):
    with open(path, "rb") as file:
        text = file.read()
    length, = struct.unpack_from("<Q", text)
    header = json.loads(text[8:8 + length])
    metadata = header.pop("__metadata__", {})
    assert (8 + length) % 8 == 0, "the data does not begin at a multiple of 8"
    tensors, ends = {}, []
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        letter, count = LETTERS[entry["dtype"]], math.prod(entry["shape"])
        assert end - begin == count * struct.calcsize(letter), name
        tensors[name] = entry["dtype"], entry["shape"], struct.unpack_from(f"<{count}{letter}", text, 8 + length + begin)
        ends.append((begin, end))
    place = 0
    for begin, end in sorted(ends):
        assert begin == place, "a gap, or an overlap"
        place = end
    assert 8 + length + place == len(text), "bytes that belong to no tensor"
    return tensors, metadata
