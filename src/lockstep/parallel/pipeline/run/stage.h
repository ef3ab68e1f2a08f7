// A stage of a pipeline: takes a microbatch in, passes its output on, and later does the same with gradients in the
// other direction.
//
// The cut. The input is detached from whatever made it, and becomes a leaf that requires a gradient. The output is
// detached, too. So autograd sees only this stage, and the gradient of the leaf is what the stage before needs.
//
//   stage 0:  x -> layers -> y      ~~ y's values ~~>      leaf -> layers -> loss
//             y.backward(g)    <~~ g = leaf.grad() ~~            loss.backward()
//
// Contract of forward and backward, for each microbatch: first forward, then either backward, or input_gradient and
// after it weight_gradient. What forward has kept is released by backward or weight_gradient. Microbatches may overlap
// in any way. Gradients of weights are added to .grad() through autograd's accumulating nodes, so that hooks on these
// nodes run. Only one thread at a time may use a stage.
#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <functional>
#include <unordered_map>
#include <vector>

#include "lockstep/parallel/pipeline/run/activation.h"
#include "lockstep/parallel/pipeline/run/edges.h"

namespace lockstep::pipeline {

// What the last stage does with its output: computes the loss, a scalar. Other stages have an empty Tail.
using Tail = std::function<torch::Tensor(const torch::Tensor& output)>;

// Whether the backward of a microbatch comes as one action (B) or as two (I and W).
enum class Backward { whole, split };

class Stage {
 public:
  virtual ~Stage() = default;

  // Returns the output, or, if there is a tail, the tail's value.
  virtual Activation forward(int microbatch, const Activation& input, Backward backward, const Tail& tail) = 0;
  // Takes the gradient of the output (undefined if there is a tail), and returns the gradient of the input. The first
  // stage returns nothing, because nobody needs the gradient of its input.
  virtual Activation backward(int microbatch, const Activation& gradient) = 0;
  // The same in two parts, for a microbatch whose forward was called with Backward::split.
  virtual Activation input_gradient(int microbatch, const Activation& gradient) = 0;
  virtual void weight_gradient(int microbatch) = 0;

  // Returns the output and keeps nothing: for batches that are not trained on.
  virtual Activation infer(const Activation& input) = 0;

  // The number of microbatches for which something is kept.
  virtual int live() const = 0;
  // Forgets all microbatches.
  virtual void clear() = 0;
};

struct StageOptions {
  bool first = false;      // the first stage of a pipeline needs no gradient of its input
  bool recompute = false;  // keeps only the input, and runs forward again before backward
};

// The modules of a network as a stage. The modules are shared, not copied.
//
// Split backward. Forward also cuts the graph before each module with parameters. I goes from piece to piece, and on
// its way records the gradient of each such module's output. With this gradient, W needs nothing but that one module:
// one product each for Linear and Conv, so I and W together do no more than B does. A module with parameters that
// consists of several modules gives the right result too, but W then runs through it once more.
//
// Recompute draws the same random numbers again (for dropout) from torch's default generator, which is shared by ranks
// that are threads. Layers that keep statistics (BatchNorm) count such a microbatch twice.
class SequentialStage final : public Stage {
 public:
  explicit SequentialStage(const torch::nn::SequentialImpl& modules, const StageOptions& options = {});

  Activation forward(int microbatch, const Activation& input, Backward backward, const Tail& tail) override;
  Activation backward(int microbatch, const Activation& gradient) override;
  Activation input_gradient(int microbatch, const Activation& gradient) override;
  void weight_gradient(int microbatch) override;
  Activation infer(const Activation& input) override;
  int live() const override { return static_cast<int>(kept_.size()); }
  void clear() override { kept_.clear(); }

 private:
  using Modules = std::vector<torch::nn::AnyModule>;

  // A part of the graph between two cuts.
  struct Piece {
    Activation input;                 // leaves
    std::vector<Edge> weighted = {};  // where the gradients of the first module's output arrive, if that module
                                      // has parameters
    Activation output = {};           // output of the whole piece
    std::vector<torch::Tensor> gradients = {};  // what arrived at `weighted`, kept from I to W
  };
  struct Kept {
    Activation input;
    Tail tail;
    Backward backward = Backward::whole;
    torch::Tensor generator;    // the generator's state before forward, if forward drew numbers and will run again
    std::vector<Piece> pieces;  // with recompute, empty until backward
  };

  void run(Kept& kept);
  Activation run_whole(const Activation& leaf, const Tail& tail);
  void run_again(Kept& kept);
  Kept& kept(int microbatch, const char* what);

  std::vector<Modules> pieces_;  // each piece but the first begins with a module that has parameters
  bool first_begins_with_parameters_ = false;
  std::vector<torch::Tensor> parameters_;  // those that require a gradient
  StageOptions options_;
  std::unordered_map<int, Kept> kept_;
};

}  // namespace lockstep::pipeline
