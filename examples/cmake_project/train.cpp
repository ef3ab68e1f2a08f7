// A model of your own with data parallelism: it learns y = 3x - 1 from samples that differ from rank to rank.
#include <lockstep/lockstep.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>

struct LineImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return layer(x); }
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(1, 1));
};
TORCH_MODULE(Line);

int main() {
  return lockstep::rank_main([](lockstep::Communicator& comm) {
    torch::set_num_threads(1);
    Line line;
    lockstep::DistributedDataParallel ddp(line, comm);
    lockstep::SGD optimizer(ddp.parameters(), torch::optim::SGDOptions(0.1));

    torch::manual_seed(static_cast<std::uint64_t>(comm.rank()));
    for (int step = 0; step < 300; ++step) {
      const auto x = torch::randn({16, 1});
      optimizer.zero_grad();
      torch::nn::functional::mse_loss(ddp.forward(x), 3 * x - 1).backward();
      optimizer.step();
    }
    if (comm.rank() == 0)
      std::printf("y = %.3f x + %.3f\n", line->layer->weight.item<double>(), line->layer->bias.item<double>());
  });
}
