#include "lockstep/cli/diagnosis/libtorch.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "lockstep/cli/start.h"

namespace lockstep::cli::diagnosis {
namespace {

using nlohmann::json;

// The kernels that OpenBLAS has chosen, such as "Haswell" or "SkylakeX"; empty if the library is not OpenBLAS. If
// OpenBLAS does not know a new processor, it takes its oldest kernels, with which matrix products took twice as long.
std::string blas_kernels(void* library) {
  using CoreName = char* (*)();
  const auto core_name = reinterpret_cast<CoreName>(::dlsym(library, "openblas_get_corename"));
  if (core_name == nullptr) return "";
  const char* name = core_name();
  return name == nullptr ? "" : name;
}

// The value for OPENBLAS_CORETYPE if the kernels are older than the processor, otherwise empty.
std::string better_kernels([[maybe_unused]] const std::string& kernels) {
#if defined(__x86_64__)
  const std::vector<std::string> old = {"Prescott", "Core2", "Penryn", "Nehalem", "Sandybridge", "Generic", "Katmai"};
  if (!__builtin_cpu_supports("avx2") || std::find(old.begin(), old.end(), kernels) == old.end()) return "";
  return __builtin_cpu_supports("avx512bw") ? "SKYLAKEX" : "HASWELL";
#else
  return "";
#endif
}

// The BLAS that the linker finds. A libtorch without a BLAS inside uses it.
Finding system_blas() {
  Finding finding{"BLAS", Verdict::ok, "", "", {}};
  std::string path;
  std::string kernels;
  if (void* library = ::dlopen("libblas.so.3", RTLD_LAZY | RTLD_LOCAL)) {
    Dl_info info{};
    void* symbol = ::dlsym(library, "sgemm_");
    if (symbol != nullptr && ::dladdr(symbol, &info) != 0 && info.dli_fname != nullptr) {
      std::error_code ignored;
      path = std::filesystem::weakly_canonical(info.dli_fname, ignored).string();
    }
    kernels = blas_kernels(library);
  }
  finding.detail = {{"path", path}, {"kernels", kernels}};
  finding.value = path.empty() ? "none" : path;
  if (!kernels.empty()) finding.value += fmt::format(", kernels for {}", kernels);
  if (const std::string better = better_kernels(kernels); !better.empty()) {
    finding.verdict = Verdict::note;
    finding.advice = fmt::format(
        "OPENBLAS_CORETYPE={}: OpenBLAS does not know this processor and uses old kernels; training is faster so, with "
        "other last digits",
        better);
  }
  if (path.find("openblas") == std::string::npos && path.find("mkl") == std::string::npos &&
      path.find("blis") == std::string::npos) {
    finding.verdict = Verdict::bad;
    finding.advice = "apt install libopenblas0-pthread: the reference BLAS trains many times slower";
  }
  return finding;
}

// What `lockstep-torch about` tells about its libtorch.
Finding about_libtorch() {
  Finding finding{"libtorch", Verdict::note, "", "", {}};
  const std::string program = std::filesystem::path(this_program()).replace_filename("lockstep-torch").string();
  if (::access(program.c_str(), X_OK) != 0) {
    finding.value = fmt::format("this lockstep was built without it: there is no {}", program);
    finding.advice = "lockstep train needs it; docs/getting_started.md says how libtorch is chosen";
    return finding;
  }
  const auto [status, output] = output_of(quoted(program) + " about 2>&1");
  const json about = json::parse(output, nullptr, false);
  if (status != 0 || !about.is_object()) {
    finding.verdict = Verdict::bad;
    finding.value = "lockstep-torch does not start";
    finding.advice = output;
    while (finding.advice.ends_with('\n')) finding.advice.pop_back();
    return finding;
  }
  finding.verdict = Verdict::ok;
  finding.detail = about;
  const std::string kernels = about.value("kernels", "");
  finding.value = fmt::format("{}{}, {}", about.value("version", ""),
                              kernels.empty() ? "" : " with " + kernels + " kernels", about.value("file", ""));
  return finding;
}

}  // namespace

std::vector<Finding> libtorch() {
  const Finding about = about_libtorch();
  if (about.verdict == Verdict::ok && about.detail.value("mkl", false))
    return {about,
            {"BLAS", Verdict::ok, "MKL, inside libtorch", "", {{"path", about.detail["file"]}, {"kernels", ""}}}};
  if (about.verdict != Verdict::ok) return {about};
  return {about, system_blas()};
}

}  // namespace lockstep::cli::diagnosis
