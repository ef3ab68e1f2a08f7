// The values of an enum in a help text.
#pragma once

#include <string>

namespace lockstep::cli {

// The names of all values, the default first and marked: "mlp (default), cnn".
template <typename Values, typename Value>
std::string choices(const Values& values, Value by_default) {
  std::string text = std::string(values.name_of(by_default)) + " (default)";
  for (const auto& [value, name, help] : values)
    if (value != by_default) text += std::string(", ") + name;
  return text;
}

}  // namespace lockstep::cli
