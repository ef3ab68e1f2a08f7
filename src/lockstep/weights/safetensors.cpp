#include "lockstep/weights.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "lockstep/base/atomic_file.h"
#include "lockstep/base/fd.h"
#include "lockstep/base/one_line.h"
#include "lockstep/error.h"

namespace lockstep::weights {
namespace {

using nlohmann::json;

// Finds a key that occurs twice in the outermost object, because a parsed document would have only the last one. A
// callback of json::parse would be too slow: with a callback, the parser looks through all keys so far at the end of
// each value.
struct OuterKeys : nlohmann::json_sax<json> {
  std::set<std::string> seen;
  std::string twice;
  int depth = 0;

  bool key(string_t& name) override {
    if (depth == 1 && !seen.insert(name).second) twice = name;
    return true;
  }
  bool start_object(std::size_t) override { return ++depth > 0; }
  bool end_object() override { return --depth >= 0; }
  bool start_array(std::size_t) override { return ++depth > 0; }
  bool end_array() override { return --depth >= 0; }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }
};

static_assert(std::endian::native == std::endian::little);
constexpr std::uint64_t kMaxHeader = 8 << 20;  // enough for 80,000 tensors; the format allows 100 MB
constexpr std::size_t kAlignment = 8;

struct Named {
  const char* name;
  at::ScalarType type;
};
constexpr Named kTypes[] = {{"F64", at::kDouble}, {"F32", at::kFloat}, {"F16", at::kHalf},  {"BF16", at::kBFloat16},
                            {"I64", at::kLong},   {"I32", at::kInt},   {"I16", at::kShort}, {"I8", at::kChar},
                            {"U8", at::kByte},    {"BOOL", at::kBool}};

const char* name_of(at::ScalarType type) {
  for (const Named& known : kTypes)
    if (known.type == type) return known.name;
  throw UsageError(fmt::format("safetensors has no type for a tensor of {}", c10::toString(type)), "a float32 tensor");
}

std::string shape_text(at::IntArrayRef sizes) {
  constexpr std::size_t kMost = 16;
  if (sizes.size() > kMost)
    return fmt::format("[{}, ... {} sizes]", fmt::join(sizes.slice(0, kMost), ", "), sizes.size());
  return fmt::format("[{}]", fmt::join(sizes.vec(), ", "));
}

// Reads one file and trusts nothing in it.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (!fd_) refuse(std::strerror(errno));
    struct stat info {};
    if (::fstat(fd_.get(), &info) != 0 || !S_ISREG(info.st_mode)) refuse("it is not a file");
    size_ = static_cast<std::uint64_t>(info.st_size);
  }

  Weights read(const Choice& wanted) {
    const json header = read_header();
    Weights weights;
    std::vector<Place> places;
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__")
        weights.metadata = metadata_of(entry);
      else
        places.push_back(place_of(name, entry));
    }
    // Tensors must lie one after the other, from the first byte to the last, without gaps and overlaps.
    std::sort(places.begin(), places.end(),
              [](const Place& a, const Place& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
    std::uint64_t next = 0;
    for (const Place& place : places) {
      if (place.begin != next)
        refuse(fmt::format("'{}' begins at byte {}, and what lies before it ends at {}", one_line(place.name),
                           place.begin, next));
      next = place.end;
    }
    if (next != size_ - data_)
      refuse(fmt::format("its tensors take {} bytes, and {} follow the header", next, size_ - data_));
    for (const Place& place : places)
      if (!wanted || wanted(place.name)) weights.tensors.emplace_back(place.name, tensor_at(place));
    return weights;
  }

 private:
  struct Place {
    std::string name;
    at::ScalarType type;
    std::vector<std::int64_t> shape;
    std::uint64_t begin, end;
  };

  [[noreturn]] void refuse(const std::string& why) const {
    throw UsageError(fmt::format("{} is no safetensors file that can be read: {}", path_, why),
                     "a whole file, as it was saved");
  }

  void read_at(void* memory, std::uint64_t bytes, std::uint64_t offset) const {
    auto* to = static_cast<char*>(memory);
    while (bytes > 0) {
      const ssize_t n = ::pread(fd_.get(), to, bytes, static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) refuse(n == 0 ? "it was cut short meanwhile" : std::strerror(errno));
      to += n;
      bytes -= static_cast<std::uint64_t>(n);
      offset += static_cast<std::uint64_t>(n);
    }
  }

  json read_header() {
    std::uint64_t length = 0;
    if (size_ < sizeof length) refuse(fmt::format("it has {} bytes, and its header's length takes 8", size_));
    read_at(&length, sizeof length, 0);
    if (length > kMaxHeader || length > size_ - sizeof length)
      refuse(fmt::format("its header has {} bytes, the whole file {}", length, size_));
    data_ = sizeof length + length;
    std::string text(length, '\0');
    read_at(text.data(), length, sizeof length);
    if (!text.starts_with('{')) refuse("its header is not a JSON object");
    OuterKeys keys;
    if (!json::sax_parse(text, &keys)) refuse("its header is not a JSON object");
    if (!keys.twice.empty()) refuse(fmt::format("'{}' stands in its header twice", one_line(keys.twice)));
    return json::parse(text);
  }

  Metadata metadata_of(const json& entry) const {
    Metadata metadata;
    if (!entry.is_object()) refuse("its __metadata__ is not an object");
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) refuse("its __metadata__ has a value that is not a text");
      metadata[key] = value.get<std::string>();
    }
    return metadata;
  }

  Place place_of(const std::string& given_name, const json& entry) const {
    const std::string name = one_line(given_name);  // for messages
    const auto field = [&](const char* key, auto&& fits) -> const json& {
      const auto found = entry.is_object() ? entry.find(key) : entry.end();
      if (!entry.is_object() || found == entry.end() || !fits(*found))
        refuse(fmt::format("'{}' has no proper {}", name, key));
      return *found;
    };
    const auto naturals = [](const json& list) {
      return list.is_array() &&
             std::all_of(list.begin(), list.end(), [](const json& item) { return item.is_number_unsigned(); });
    };
    Place place{given_name, at::kFloat, {}, 0, 0};
    const auto dtype = field("dtype", [](const json& value) { return value.is_string(); }).get<std::string>();
    const auto* known =
        std::find_if(std::begin(kTypes), std::end(kTypes), [&](auto& type) { return dtype == type.name; });
    if (known == std::end(kTypes)) refuse(fmt::format("'{}' has the unknown type '{}'", name, one_line(dtype)));
    place.type = known->type;
    std::uint64_t bytes = c10::elementSize(place.type), without_zeros = bytes;
    for (const json& item : field("shape", naturals)) {
      const auto size = item.get<std::uint64_t>();
      // libtorch multiplies the other sizes even if one of them is zero, so their product must not overflow either.
      if (size > std::uint64_t{1} << 62 || __builtin_mul_overflow(bytes, size, &bytes) ||
          __builtin_mul_overflow(without_zeros, std::max<std::uint64_t>(size, 1), &without_zeros) ||
          without_zeros > std::uint64_t{1} << 62)
        refuse(fmt::format("'{}' has a shape that no file holds", name));
      place.shape.push_back(static_cast<std::int64_t>(size));
    }
    const json& offsets = field("data_offsets", naturals);
    if (offsets.size() != 2) refuse(fmt::format("'{}' has no proper data_offsets", name));
    place.begin = offsets[0].get<std::uint64_t>();
    place.end = offsets[1].get<std::uint64_t>();
    if (place.begin > place.end || place.end > size_ - data_)
      refuse(fmt::format("'{}' lies at bytes {} to {}, and {} follow the header", name, place.begin, place.end,
                         size_ - data_));
    if (place.end - place.begin != bytes)
      refuse(fmt::format("'{}' is {} {} and takes {} bytes, not {}", name, dtype, shape_text(place.shape), bytes,
                         place.end - place.begin));
    return place;
  }

  torch::Tensor tensor_at(const Place& place) const {
    torch::Tensor tensor;
    try {
      tensor = torch::empty(place.shape, at::TensorOptions(place.type));
    } catch (const c10::Error&) {
      throw UsageError(fmt::format("{}: '{}' takes {}, and so much memory can't be had", path_, one_line(place.name),
                                   describe_bytes(place.end - place.begin)),
                       "a smaller model, or a higher limit on memory");
    }
    read_at(tensor.data_ptr(), place.end - place.begin, data_ + place.begin);
    return tensor;
  }

  std::string path_;
  Fd fd_;
  std::uint64_t size_ = 0;
  std::uint64_t data_ = 0;  // where the tensors begin
};

std::string describe(const torch::Tensor& tensor) {
  return fmt::format("{} {}", name_of(tensor.scalar_type()), shape_text(tensor.sizes()));
}

}  // namespace

NamedTensors tensors_of(const torch::nn::Module& module) {
  NamedTensors found;
  for (const auto& item : module.named_parameters()) found.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) found.emplace_back(item.key(), item.value());
  return found;
}

void save_tensors(const std::string& path, const std::vector<TensorSpec>& specs,
                  const std::function<torch::Tensor(std::size_t spec)>& fetch, const Metadata& metadata) {
  // Wide types come first, so that every tensor begins at a multiple of its element's size.
  std::vector<std::size_t> order(specs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return c10::elementSize(specs[a].type) > c10::elementSize(specs[b].type);
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (const std::size_t i : order) {
    const auto& [name, type, shape] = specs[i];
    const auto elements =
        std::accumulate(shape.begin(), shape.end(), std::uint64_t{1},
                        [](std::uint64_t n, std::int64_t size) { return n * static_cast<std::uint64_t>(size); });
    const std::uint64_t end = offset + elements * c10::elementSize(type);
    header[name] = {{"dtype", name_of(type)}, {"shape", shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  const std::uint64_t length = text.size();

  AtomicFile file(path);
  file.write(bytes_of(length));
  file.write(std::as_bytes(std::span(text)));
  for (const std::size_t i : order) {
    const torch::Tensor flat = fetch(i).detach().contiguous();
    file.write({static_cast<const std::byte*>(flat.data_ptr()), flat.nbytes()});
  }
  file.commit();
}

void save_tensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : tensors) specs.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
  save_tensors(
      path, specs, [&](std::size_t i) { return tensors[i].second; }, metadata);
}

Weights load_tensors(const std::string& path, const Choice& wanted) { return Reader(path).read(wanted); }

void save_weights(const std::string& path, const torch::nn::Module& module, const Metadata& metadata) {
  save_tensors(path, tensors_of(module), metadata);
}

namespace {

// Metadata of a file as a setting of its model: "`dim` 24", or "`tied`". Lockstep 0.1.0 wrote --dim as the key.
std::string setting_of(std::string key, const std::string& value) {
  if (key.starts_with("--")) key.erase(0, 2);
  return value == "true" || value.empty() ? fmt::format("`{}`", one_line(key))
                                          : fmt::format("`{}` {}", one_line(key), one_line(value));
}

}  // namespace

void load_weights(const std::string& path, torch::nn::Module& module, const Choice& elsewhere) {
  const Weights weights = load_tensors(path, [&](const std::string& name) { return !elsewhere || !elsewhere(name); });
  const std::map<std::string, torch::Tensor> in_file(weights.tensors.begin(), weights.tensors.end());
  const NamedTensors in_module = tensors_of(module);
  const auto refuse = [&](const std::string& why) {
    std::string made_for;
    for (const auto& [key, value] : weights.metadata)
      if (key != "format") made_for += (made_for.empty() ? "" : ", ") + setting_of(key, value);
    throw UsageError(
        fmt::format("{} has the weights of another model: {}", path, why),
        made_for.empty() ? "the model that they were saved from" : "the model that they are of: " + made_for);
  };
  std::set<std::string> wanted;
  std::map<const at::TensorImpl*, std::string> names;  // the first name of each tensor, because tied weights have two
  for (const auto& [name, tensor] : in_module) {
    wanted.insert(name);
    const auto found = in_file.find(name);
    if (found == in_file.end()) refuse(fmt::format("it has no '{}', which is {} here", name, describe(tensor)));
    if (found->second.sizes() != tensor.sizes() || found->second.scalar_type() != tensor.scalar_type())
      refuse(
          fmt::format("'{}' is {} in the file and {} here", one_line(name), describe(found->second), describe(tensor)));
    const std::string& first = names.emplace(tensor.unsafeGetTensorImpl(), name).first->second;
    if (first != name && tensor.nbytes() > 0 &&
        std::memcmp(in_file.at(first).data_ptr(), found->second.data_ptr(), tensor.nbytes()) != 0)
      refuse(fmt::format("'{}' and '{}' are one tensor here, and differ in the file", first, name));
  }
  for (const auto& [name, tensor] : in_file)
    if (!wanted.contains(name))
      refuse(fmt::format("it has '{}', {}, which is not here", one_line(name), describe(tensor)));
  const torch::NoGradGuard no_gradients;
  for (const auto& [name, tensor] : in_module) torch::Tensor(tensor).copy_(in_file.at(name));
}

}  // namespace lockstep::weights
