#include "lockstep/cli/with_flags.h"

#include <algorithm>
#include <map>
#include <set>

namespace lockstep::cli {
namespace {

// The flag of a setting, without its dashes. Most have the name of the setting.
std::string flag_of(std::string setting) {
  static const std::map<std::string, std::string> kOthers{{"emulate", "emulate-compute"}, {"remainder", "tail"}};
  if (const auto other = kOthers.find(setting); other != kOthers.end()) return other->second;
  std::replace(setting.begin(), setting.end(), '_', '-');
  return setting;
}

// What the library's messages name. Anything else in backquotes is not its own, such as the name of a file.
bool is_setting(const std::string& word) {
  static const std::set<std::string> kSettings{
      "accumulate",  "algorithm",    "balance",    "batch",          "batch_per_rank", "bucket_mb", "channels",
      "data",        "depth",        "dim",        "emulate",        "epochs",         "flat",      "fused_update",
      "heads",       "hidden",       "layer_wait", "load",           "log_dir",        "lr",        "master_addr",
      "master_port", "microbatches", "model",      "optimizer",      "overlap",        "ranks",     "recompute",
      "remainder",   "save",         "schedule",   "sequence",       "stages",         "steps",     "strategy",
      "tied",        "trace",        "transport",  "virtual_stages", "vocabulary",     "warmup"};
  return kSettings.contains(word);
}

}  // namespace

std::string with_flags(const std::string& text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text[at] == '`' ? text.find('`', at + 1) : std::string::npos;
    const std::string word = end == std::string::npos ? "" : text.substr(at + 1, end - at - 1);
    if (is_setting(word)) {
      result += "--" + flag_of(word);
      at = end + 1;
    } else {
      result += text[at++];
    }
  }
  return result;
}

}  // namespace lockstep::cli
