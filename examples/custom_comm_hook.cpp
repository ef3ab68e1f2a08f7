// A communication hook of your own: top-k, written by hand. Each rank sends only the largest tenth of its gradients,
// and keeps the rest for the next step, so that nothing is lost.
//   lockstep run -n 4 -- custom_comm_hook
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <map>

#include "lockstep/data.h"
#include "lockstep/data_parallel.h"
#include "lockstep/model.h"
#include "lockstep/tensor.h"

// region hook
// What a rank has not sent yet, by the parameters of a bucket. These change once, when buckets are rebuilt.
using Rest = std::map<std::vector<std::size_t>, torch::Tensor>;

lockstep::CommHook top_k(std::shared_ptr<Rest> rest) {
  return [rest](lockstep::Communicator& comm, lockstep::GradientBucket& bucket) {
    const torch::Tensor flat = bucket.flat();
    torch::Tensor& left = (*rest)[bucket.parameters()];
    if (!left.defined()) left = torch::zeros_like(flat);
    left += flat;
    const auto count = std::max<std::int64_t>(1, flat.numel() / 10);
    const torch::Tensor index = std::get<1>(left.abs().topk(count));
    const torch::Tensor value = left.index_select(0, index);
    left.index_fill_(0, index, 0);

    // Every rank chooses different elements, so indices and values are gathered, not summed.
    const torch::Tensor indices = lockstep::all_gather(comm, index);
    const torch::Tensor values = lockstep::all_gather(comm, value);
    flat.zero_();
    flat.index_add_(0, indices.flatten(), values.flatten() / comm.size());
    return lockstep::Work();  // there is nothing to wait for
  };
}
// endregion

int main() {
  return lockstep::rank_main([](lockstep::Communicator& comm) {
    torch::set_num_threads(1);
    torch::manual_seed(42);
    lockstep::model::FullMLP model(64, 4);
    const auto mine = lockstep::data::slice(lockstep::data::classification(64, 64), comm.rank(), comm.size());
    lockstep::DdpOptions options;
    options.hook = top_k(std::make_shared<Rest>());
    lockstep::DistributedDataParallel ddp(model, comm, options);
    torch::optim::SGD optimizer(ddp.parameters(), torch::optim::SGDOptions(0.5));

    for (int step = 0; step < 100; ++step) {
      auto loss = lockstep::ddp_step(
          optimizer, [&] { return torch::nn::functional::cross_entropy(ddp.forward(mine.inputs), mine.targets); });
      lockstep::all_reduce_mean(comm, loss);
      if (comm.rank() == 0 && step % 20 == 19) std::printf("step %3d  loss %.4f\n", step + 1, loss.item<double>());
    }
  });
}
