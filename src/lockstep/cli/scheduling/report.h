// What `lockstep schedule` tells about a schedule: text for people, and JSON for scripts.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/parallel/pipeline/schedule/picture.h"

namespace lockstep::cli::scheduling {

// "1f1b: 4 stages, 8 microbatches, F = 1, B = 2"
std::string title_of(const pipeline::Schedule& schedule, const pipeline::Times& times);

// The picture and the figures below it. The schedule must be without a problem.
std::string text_of(const pipeline::Schedule& schedule, const pipeline::Times& times, const pipeline::Verdict& verdict,
                    const pipeline::TextStyle& style);

// The document that docs/command_line.md promises, with or without a problem; `with_sends` adds the lowered lists.
nlohmann::json json_of(const pipeline::Schedule& schedule, const pipeline::Times& times,
                       const pipeline::Verdict& verdict, bool with_sends);

// "27.3% (3/11)". The fraction is there only if idle time and makespan are whole numbers.
std::string bubble_text(const pipeline::Prediction& prediction);

}  // namespace lockstep::cli::scheduling
