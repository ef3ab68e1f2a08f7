#include "lockstep/libtorch/loaded.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstring>
#include <filesystem>
#include <span>

#include "lockstep/error.h"
#include "lockstep/libtorch/built_with.h"

namespace lockstep::libtorch {
namespace {

struct Loaded {
  std::string file;
  std::string build_id;
};

// The notes of one segment are records of a header, a name and a content, each padded to 4 bytes.
std::string build_id_in(std::span<const char> notes) {
  const auto padded = [](std::size_t size) { return (size + 3) / 4 * 4; };
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes.data(), sizeof header);
    const std::size_t content = sizeof header + padded(header.n_namesz);
    const std::size_t end = content + padded(header.n_descsz);
    if (end > notes.size()) break;
    if (header.n_type == NT_GNU_BUILD_ID && std::string_view(notes.data() + sizeof header, 3) == "GNU") {
      std::string hex;
      for (const char byte : notes.subspan(content, header.n_descsz))
        hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
      return hex;
    }
    notes = notes.subspan(end);
  }
  return "";
}

std::vector<Loaded> loaded_libraries() {
  std::vector<Loaded> all;
  ::dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* result) {
        std::string id;
        for (const ElfW(Phdr) & segment : std::span(object->dlpi_phdr, object->dlpi_phnum))
          if (segment.p_type == PT_NOTE && id.empty())
            id = build_id_in({reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr), segment.p_memsz});
        static_cast<std::vector<Loaded>*>(result)->push_back({object->dlpi_name, id});
        return 0;
      },
      &all);
  return all;
}

// Debian adds the version to the name: libtorch_cpu.so.1.13.
bool is_named(const Loaded& loaded, const std::string& name) {
  return std::filesystem::path(loaded.file).filename().string().starts_with(name);
}

}  // namespace

std::string built_with_version() { return kBuiltWithVersion; }

std::string loaded_file(const std::string& name) {
  for (const Loaded& loaded : loaded_libraries())
    if (is_named(loaded, name)) return loaded.file;
  return "";
}

const std::vector<Library>& built_with() {
  static const std::vector<Library> libraries{LOCKSTEP_BUILT_WITH};
  return libraries;
}

void check_loaded(const std::vector<Library>& expected) {
  for (const Loaded& loaded : loaded_libraries())
    for (const Library& library : expected)
      if (is_named(loaded, library.name) && !library.build_id.empty() && loaded.build_id != library.build_id)
        throw Error(
            fmt::format("the libtorch that was loaded is not the one that Lockstep was built with: {} has build ID "
                        "{}, and {} (version {}) had {}",
                        loaded.file, loaded.build_id.empty() ? "none" : loaded.build_id, library.built,
                        kBuiltWithVersion, library.build_id),
            "without LD_LIBRARY_PATH; or build Lockstep again with LOCKSTEP_TORCH set to the libtorch you want");
}

}  // namespace lockstep::libtorch
