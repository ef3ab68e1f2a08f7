#include "lockstep/cli/with_flags.h"

#include <algorithm>
#include <map>

namespace lockstep::cli {
namespace {

// The flag of a setting, without its dashes. Most have the name of the setting.
std::string flag_of(std::string setting) {
  static const std::map<std::string, std::string> kOthers{{"emulate", "emulate-compute"}, {"remainder", "tail"}};
  if (const auto other = kOthers.find(setting); other != kOthers.end()) return other->second;
  std::replace(setting.begin(), setting.end(), '_', '-');
  return setting;
}

bool is_setting(const std::string& word) {
  return !word.empty() && word.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string::npos;
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
