// Is the libtorch in this process the one that Lockstep was built with?
//
// The linker takes whichever library of the right name it finds first. With another version most symbols are there, and
// what follows are hangs and wrong numbers. So programs ask before their first use of libtorch. Libraries are told
// apart by their build IDs, which the linker wrote into them; nothing of libtorch is called.
#pragma once

#include <string>
#include <vector>

namespace lockstep::libtorch {

struct Library {
  std::string name;      // libtorch_cpu.so
  std::string built;     // the file that Lockstep was built with
  std::string build_id;  // of that file, in hex; empty if it has none
};

// Those that this build of Lockstep was linked with.
const std::vector<Library>& built_with();
std::string built_with_version();  // such as 2.13.0+cpu

// The file of a loaded library whose name begins like this; empty if none is loaded.
std::string loaded_file(const std::string& name);

// Throws Error if a library of one of these names is loaded that has another build ID. The text names both files.
void check_loaded(const std::vector<Library>& expected = built_with());

}  // namespace lockstep::libtorch
