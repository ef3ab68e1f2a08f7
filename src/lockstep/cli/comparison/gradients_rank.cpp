// `lockstep compare hooks`, `overlap` and `buckets`: the ranks that train.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/cli/comparison/gradients.h"
#include "lockstep/cli/comparison/model_flags.h"
#include "lockstep/cli/start.h"
#include "lockstep/communicator.h"
#include "lockstep/model.h"
#include "lockstep/rendezvous/identity.h"

namespace lockstep::cli::comparison {
namespace {

using nlohmann::json;

json row_of(const std::string& what, const std::string& name, const train::Result& result) {
  const train::Phases& phases = result.phases;
  json row = {{"name", name},
              {"step_ms", 1e3 * result.step_p50},
              {"backward_ms", 1e3 * phases.backward},
              {"communication_ms", 1e3 * phases.communication},
              {"exposed_ms", 1e3 * phases.exposed_communication},
              {"overlap", phases.communication > 0 ? phases.overlapped / phases.communication : 0}};
  if (what == "overlap" && result.backward) row["overlaps"] = result.backward->overlaps;
  if (what != "buckets" || !result.backward) return row;
  std::size_t bytes = 0;
  for (const auto& travel : result.backward->travels) bytes += travel.bytes;
  const std::size_t calls = result.backward->travels.size();
  row["calls"] = calls;
  row["bytes_per_call"] = static_cast<double>(bytes) / static_cast<double>(std::max<std::size_t>(calls, 1));
  return row;
}

// When the gradients or buckets of one backward travelled.
json backward_of(const train::BackwardRecord& record) {
  json gradients = json::array();
  for (const auto& travel : record.travels)
    gradients.push_back({{"parameter", travel.name.empty() ? fmt::format("bucket {}", gradients.size()) : travel.name},
                         {"bytes", travel.bytes},
                         {"ready_us", travel.ready * 1e6},
                         {"began_us", travel.began * 1e6},
                         {"ended_us", travel.ended * 1e6}});
  return {{"backward_end_us", record.end * 1e6}, {"gradients", std::move(gradients)}};
}

void compare(const std::string& what, const GradientOptions& options, Communicator& comm) {
  const std::vector<NamedConfig> all = contenders(what, options);
  std::vector<train::Training> trainings;
  for (const NamedConfig& one : all) trainings.emplace_back(one.config, comm.rank(), comm.size());
  const std::vector<train::Result> results = train::Training::run_in_turns(trainings, comm);
  if (comm.rank() != 0) return;

  json document = {{"comparison", what},
                   {"parameters", results[0].parameters},
                   {"gradient_bytes", results[0].gradient_bytes},
                   {"tensors", model::make_model(options.model)->parameters().size()},
                   {"ranks", comm.size()},
                   {"transport", comm.transport()},
                   {"batch", options.batch},
                   {"steps", options.steps},
                   {"threads", at::get_num_threads()},
                   {"device_ms", 1e3 * options.layer_wait},
                   {"rows", json::array()}};
  document.update(model_fields(options.model));
  for (std::size_t i = 0; i < all.size(); ++i) document["rows"].push_back(row_of(what, all[i].name, results[i]));
  const double first = document["rows"][0]["step_ms"];
  for (json& row : document["rows"]) row["speedup"] = first / row["step_ms"].get<double>();
  document["speedup"] = document["rows"].back()["speedup"];
  if (what == "hooks" && results.back().backward) {
    document["timeline"] = results.back().backward->table;
    document.update(backward_of(*results.back().backward));
  }
  for (std::size_t i = 0; what == "overlap" && i < all.size(); ++i) {
    if (!results[i].backward || all[i].config.overlap == Overlap::automatic) continue;
    document["backwards"].push_back(backward_of(*results[i].backward));
    document["backwards"].back()["name"] = all[i].name;
  }
  write_result(options.result, document);
}

}  // namespace

int compare_gradients_rank(const std::string& what, std::span<const std::string> arguments) {
  const GradientOptions options = parse_gradient_options(what, arguments);
  const train::TrainingConfig config = contenders(what, options).front().config;
  train::prepare_process(config, rendezvous::identity_from_environment().local_size);
  return rank_main([&](Communicator& comm) { compare(what, options, comm); }, train::transport_options(config),
                   train::comm_options(config));
}

}  // namespace lockstep::cli::comparison
