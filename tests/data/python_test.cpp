// The same seed draws the same numbers as PyTorch in Python, in the same order, bit for bit.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "files.h"
#include "lockstep/data.h"
#include "lockstep/model.h"

namespace lockstep::data {
namespace {

// Raw bytes from Python, taken from the front.
class Peer {
 public:
  explicit Peer(const std::string& what) {
    const Folder folder;
    const std::string file = (folder / "out").string();
    const int status = std::system(("'" PYTHON "' -B '" PEER "' " + what + " '" + file + "'").c_str());
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    std::ifstream stream(file, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(stream), {});
  }
  bool missing() const { return code_ == 77; }
  bool failed() const { return code_ != 0; }
  bool all_taken() const { return taken_ == bytes_.size(); }

  // True: the next bytes are these. For numbers, that is more than equality: -0 and NaN count too.
  bool gives(const void* data, std::size_t count) {
    if (bytes_.size() - taken_ < count) return false;
    taken_ += count;
    return std::memcmp(bytes_.data() + taken_ - count, data, count) == 0;
  }
  bool gives(const torch::Tensor& tensor) {
    const torch::Tensor flat = tensor.detach().contiguous();
    return gives(flat.data_ptr(), flat.nbytes());
  }

 private:
  int code_;
  std::string bytes_;
  std::size_t taken_ = 0;
};

void expect_same(Peer& peer, std::uint64_t seed, const model::ModelConfig& config,
                 const std::function<Batch()>& draw_batch) {
  torch::manual_seed(seed);
  torch::nn::Sequential net = model::make_model(config);
  const Batch batch = draw_batch();
  for (const auto& parameter : net->named_parameters()) ASSERT_TRUE(peer.gives(parameter.value())) << parameter.key();
  ASSERT_TRUE(peer.gives(batch.inputs)) << "inputs";
  ASSERT_TRUE(peer.gives(net->forward(batch.inputs))) << "outputs";
  ASSERT_TRUE(peer.gives(batch.targets)) << "targets";
}

TEST(SameAsPython, WeightsInputsOutputsAndTargets) {
  Peer peer("draws");
  if (peer.missing()) GTEST_SKIP() << "PyTorch for Python is not installed";
  ASSERT_FALSE(peer.failed());
  expect_same(peer, 42, {}, [] { return classification(32, 128); });
  expect_same(peer, 7, {.dim = 5, .depth = 1, .outputs = 3}, [] { return classification(3, 5, 3); });
  expect_same(peer, 42, {.kind = model::ModelKind::cnn}, [] { return images(32); });
  expect_same(peer, 1,
              {.kind = model::ModelKind::cnn, .channels = {3, 5, 7}, .hidden = 11, .classes = 4, .image_side = 20},
              [] { return images(6, 20, 4); });
  const auto transformer = [](const model::TransformerSizes& sizes) {
    return model::ModelConfig{.kind = model::ModelKind::transformer, .transformer = sizes};
  };
  expect_same(peer, 42, transformer({}), [] { return tokens(32, 32, 256); });
  expect_same(peer, 3, transformer({.dim = 12, .depth = 2, .heads = 3, .vocabulary = 7, .sequence = 5, .tied = true}),
              [] { return tokens(4, 5, 7); });
  expect_same(peer, 3, transformer({.dim = 2, .depth = 1, .heads = 1, .vocabulary = 3, .sequence = 1}),
              [] { return tokens(1, 1, 3); });
  EXPECT_TRUE(peer.all_taken());
}

TEST(SameAsPython, SamplersIndices) {
  Peer peer("sampler");
  if (peer.missing()) GTEST_SKIP() << "PyTorch for Python is not installed";
  ASSERT_FALSE(peer.failed());
  for (const std::int64_t samples : {5, 64, 97})
    for (const int ranks : {1, 2, 3, 5})
      for (const std::uint64_t seed : {0, 42})
        for (const std::int64_t epoch : {0, 3})
          for (const Remainder remainder : {Remainder::pad, Remainder::drop})
            for (const bool shuffle : {false, true})
              for (Rank rank = 0; rank < ranks; ++rank) {
                DistributedSampler sampler(samples, rank, ranks,
                                           {.shuffle = shuffle, .seed = seed, .remainder = remainder});
                sampler.set_epoch(epoch);
                const std::vector<std::int64_t> mine = sampler.indices();
                ASSERT_TRUE(peer.gives(mine.data(), mine.size() * sizeof(std::int64_t)))
                    << samples << " samples, rank " << rank << " of " << ranks << ", seed " << seed << ", epoch "
                    << epoch;
              }
  EXPECT_TRUE(peer.all_taken());
}

}  // namespace
}  // namespace lockstep::data
