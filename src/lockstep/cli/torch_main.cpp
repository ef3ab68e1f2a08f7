// lockstep-torch: the part of `lockstep` that needs libtorch. `lockstep` starts it; users do not.
#include <ATen/Context.h>
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "lockstep/cli/comparison/gradients.h"
#include "lockstep/cli/guarded.h"
#include "lockstep/cli/training/rank.h"
#include "lockstep/error.h"
#include "lockstep/libtorch/loaded.h"
#include "lockstep/libtorch/versions.h"

namespace {

// Prints what `lockstep doctor` wants to know about libtorch.
int about() {
  const auto& loaded = lockstep::libtorch::built_with().front();
  const nlohmann::json document = {{"version", lockstep::libtorch::built_with_version()},
                                   {"file", lockstep::libtorch::loaded_file(loaded.name)},
                                   {"mkl", at::hasMKL()},
                                   {"kernels", lockstep::libtorch::kernels()}};
  fmt::print("{}\n", document.dump());
  return lockstep::kExitOk;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep;
  const std::vector<std::string> words(argv + 1, argv + std::max(argc, 1));
  std::signal(SIGPIPE, SIG_IGN);  // the run goes on if nobody reads its progress any more
  const std::string verb = words.empty() ? "" : words[0];
  return cli::guarded(verb.empty() ? "lockstep-torch" : "lockstep " + verb, [&] {
    libtorch::check_loaded();
    if (verb == "about") return about();
    if (verb == "train") return cli::training::run_rank(std::span(words).subspan(1));
    if (verb == "compare" && words.size() > 1)
      return cli::comparison::compare_gradients_rank(words[1], std::span(words).subspan(2));
    throw UsageError("lockstep-torch is started by lockstep", "lockstep train");
  });
}
