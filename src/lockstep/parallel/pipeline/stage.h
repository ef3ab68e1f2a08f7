// A stage of a pipeline: takes a microbatch in, gives it out, and later does the same with gradients.
//
// The cut. What comes in is detached from whatever made it, and made a leaf that wants a gradient; what goes out is
// detached too. So autograd sees only this stage, and the gradient of the leaf is what the stage before needs.
//
//   stage 0:  x -> layers -> y      ~~ y's values ~~>      leaf -> layers -> loss
//             y.backward(g)    <~~ g = leaf.grad() ~~            loss.backward()
//
// Contract of forward and backward, for each microbatch: forward, then either backward, or input_gradient and
// weight_gradient in this order. What forward kept is let go by backward or weight_gradient. Microbatches may overlap
// in any way. Gradients of weights are added to .grad(), through the nodes that hooks hang on. One thread at a time.
#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <functional>
#include <unordered_map>
#include <vector>

#include "lockstep/parallel/pipeline/edges.h"

namespace lockstep::pipeline {

// What the last stage does with its output: the loss, a scalar. Other stages have none.
using Tail = std::function<torch::Tensor(const torch::Tensor& output)>;

// Whether the backward of a microbatch will come in one (B) or in two (I, W).
enum class Backward { whole, split };

class Stage {
 public:
  virtual ~Stage() = default;

  // The output, or with a tail its value.
  virtual torch::Tensor forward(int microbatch, const torch::Tensor& input, Backward backward, const Tail& tail) = 0;
  // From the gradient of the output (undefined where there is a tail) to that of the input, which is undefined for the
  // first stage: nobody asks for it.
  virtual torch::Tensor backward(int microbatch, const torch::Tensor& gradient) = 0;
  // The same in two, for a forward that was told so.
  virtual torch::Tensor input_gradient(int microbatch, const torch::Tensor& gradient) = 0;
  virtual void weight_gradient(int microbatch) = 0;

  // The output, and nothing is kept: for what is not trained on.
  virtual torch::Tensor infer(const torch::Tensor& input) = 0;

  // For how many microbatches something is kept.
  virtual int live() const = 0;
  // Forgets all microbatches.
  virtual void clear() = 0;
};

struct StageOptions {
  bool first = false;      // wants no gradient of its input
  bool recompute = false;  // keeps the input only, and runs forward again before backward
};

// The modules of a network as a stage; they are shared, not copied.
//
// Split backward. Forward cuts the graph again before each module with parameters. I goes from piece to piece, and on
// its way takes down the gradient of each such module's output. With it W needs nothing but that one module: for Linear
// and Conv one product each, so I and W do together what B does, and no more. A module with parameters that is itself
// made of several is right too, but W then runs through it once more.
//
// Recompute draws the same random numbers again (dropout), from torch's default generator; ranks that are threads share
// that one. Layers that keep statistics (BatchNorm) count such a microbatch twice.
class SequentialStage final : public Stage {
 public:
  explicit SequentialStage(const torch::nn::SequentialImpl& modules, const StageOptions& options = {});

  torch::Tensor forward(int microbatch, const torch::Tensor& input, Backward backward, const Tail& tail) override;
  torch::Tensor backward(int microbatch, const torch::Tensor& gradient) override;
  torch::Tensor input_gradient(int microbatch, const torch::Tensor& gradient) override;
  void weight_gradient(int microbatch) override;
  torch::Tensor infer(const torch::Tensor& input) override;
  int live() const override { return static_cast<int>(kept_.size()); }
  void clear() override { kept_.clear(); }

 private:
  using Modules = std::vector<torch::nn::AnyModule>;

  // A part of the graph between two cuts.
  struct Piece {
    torch::Tensor input;     // a leaf
    Edge weighted;           // where the gradient of the first module's output arrives, if that has parameters
    torch::Tensor output;    // of the whole piece
    torch::Tensor gradient;  // what arrived at `weighted`, from I to W
  };
  struct Kept {
    torch::Tensor input;
    Tail tail;
    Backward backward = Backward::whole;
    torch::Tensor generator;    // its state before forward, when that drew something and will run again
    std::vector<Piece> pieces;  // empty until backward, with recompute
  };

  void run(Kept& kept);
  torch::Tensor run_whole(const torch::Tensor& leaf, const Tail& tail);
  void run_again(Kept& kept);
  Kept& kept(int microbatch, const char* what);

  std::vector<Modules> pieces_;  // each but the first begins with a module that has parameters
  bool first_begins_with_parameters_ = false;
  std::vector<torch::Tensor> parameters_;  // those that want a gradient
  StageOptions options_;
  std::unordered_map<int, Kept> kept_;
};

}  // namespace lockstep::pipeline
