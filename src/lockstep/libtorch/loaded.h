// Checks whether the libtorch in this process is the one that Lockstep was built with.
//
// The dynamic linker takes the first library of the right name that it finds. In another version most symbols exist,
// and the program hangs or computes wrong numbers. So programs check before their first use of libtorch. Libraries are
// told apart by their build IDs, which the linker wrote into them; no function of libtorch is called.
#pragma once

#include <string>
#include <vector>

namespace lockstep::libtorch {

struct Library {
  std::string name;      // such as libtorch_cpu.so
  std::string built;     // the file that Lockstep was built with
  std::string build_id;  // build ID of that file, in hex; empty if it has none
};

// The libraries that this build of Lockstep was linked with.
const std::vector<Library>& built_with();
std::string built_with_version();  // such as 2.13.0+cpu

// The path of the loaded library whose name begins with `name`; empty if there is none.
std::string loaded_file(const std::string& name);

// Throws Error if a loaded library has an expected name but another build ID. The text names both files.
void check_loaded(const std::vector<Library>& expected = built_with());

}  // namespace lockstep::libtorch
