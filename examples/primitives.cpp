// The primitives of data parallelism: weights are sent from one rank to all, a batch is cut up, results are collected.
//   lockstep run -n 4 -- primitives
#include <cstdio>
#include <numeric>
#include <vector>

#include "lockstep/communicator.h"
#include "lockstep/error.h"

int main() {
  return lockstep::rank_main([](lockstep::Communicator& comm) {
    const auto p = static_cast<std::size_t>(comm.size());
    constexpr lockstep::Rank kRoot = 0;
    constexpr std::size_t kPerRank = 3;

    // region broadcast
    // Only rank 0 draws the weights; after the broadcast all ranks have the same.
    std::vector<float> weights(2);
    if (comm.rank() == kRoot) weights = {2.0F, 1.0F};
    comm.broadcast(weights, kRoot);
    // endregion

    // region scatter
    // Rank 0 has the batch, and each rank gets its share of it.
    std::vector<float> batch;
    if (comm.rank() == kRoot) {
      batch.resize(kPerRank * p);
      std::iota(batch.begin(), batch.end(), 0.0F);
    }
    std::vector<float> share(kPerRank);
    comm.scatter(batch, share, kRoot);
    // endregion

    for (float& x : share) x = weights[0] * x + weights[1];

    // region gather
    // The results go back to rank 0, in rank order; with all_gather, all ranks would get them.
    std::vector<float> results(comm.rank() == kRoot ? kPerRank * p : 0);
    comm.gather(share, results, kRoot);
    // endregion

    comm.barrier();  // not needed for the results: rank 0 prints when all ranks are done
    if (comm.rank() != kRoot) return;
    std::printf("y = 2x + 1:");
    for (const float y : results) std::printf(" %g", static_cast<double>(y));
    std::printf("\n");
    for (std::size_t i = 0; i < results.size(); ++i)
      if (results[i] != 2.0F * static_cast<float>(i) + 1.0F) throw lockstep::Error("a result is wrong");
  });
}
