// Weights that ranks have parts of: one file, the one that the whole model's owner would write.
#include "lockstep/weights/save_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <filesystem>
#include <fstream>

#include "lockstep/error.h"
#include "lockstep/weights/digest.h"

namespace lockstep::weights {
namespace {

namespace fs = std::filesystem;
using torch::nn::BatchNorm1d;
using torch::nn::Linear;
using torch::nn::Sequential;

class SaveParts : public testing::Test {
 protected:
  SaveParts() {
    std::string name = (fs::temp_directory_path() / "lockstep-XXXXXX").string();
    folder = ::mkdtemp(name.data());
  }
  ~SaveParts() override { fs::remove_all(folder); }

  std::string path(const char* name) const { return (folder / name).string(); }
  static std::string bytes(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Saves whole, and by ranks that have these modules each; `others` ranks have none of the file's.
  void save_both(const Sequential& whole, const std::vector<std::vector<std::size_t>>& modules, int others = 0) {
    const Metadata metadata{{"format", "pt"}, {"depth", "3"}};
    save_weights(path("whole"), *whole, metadata);
    const int parts = static_cast<int>(modules.size());
    thread_world(parts + others, [&](Communicator& comm) {
      Sequential mine;
      const auto rank = static_cast<std::size_t>(comm.rank());
      if (comm.rank() < parts)
        for (const std::size_t module : modules[rank])
          mine->push_back(std::to_string(module), *(whole->begin() + static_cast<std::ptrdiff_t>(module)));
      else
        mine->push_back("0", Linear(100, 100));
      save_parts(path("parts"), *mine, comm, parts, metadata);
      // The next message from those who have no part is this one.
      std::int64_t mark = comm.rank() == 0 ? 0 : 77;
      if (comm.rank() >= parts) comm.send(0, ConstBuffer(&mark, 1, DType::int64));
      for (Rank other = parts; comm.rank() == 0 && other < comm.size(); ++other) {
        comm.recv(other, Buffer(&mark, 1, DType::int64));
        EXPECT_EQ(mark, 77);
      }
      comm.barrier();
    });
  }

  fs::path folder;
};

Sequential five_layers() {
  torch::manual_seed(3);
  return Sequential(Linear(3, 4), Linear(4, 5), Linear(5, 1), Linear(1, 7), Linear(7, 2));
}

TEST_F(SaveParts, AreTheWholesBytes) {
  for (const auto& modules : std::vector<std::vector<std::vector<std::size_t>>>{
           {{0, 1, 2, 3, 4}}, {{0, 1, 2}, {3, 4}}, {{0}, {1}, {2}, {3}, {4}}}) {
    save_both(five_layers(), modules);
    EXPECT_EQ(bytes(path("parts")), bytes(path("whole"))) << modules.size();
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 2);
}

TEST_F(SaveParts, RanksBeyondThePartsHaveNothingToDo) {
  save_both(five_layers(), {{0, 1}, {2, 3, 4}}, 2);
  EXPECT_EQ(bytes(path("parts")), bytes(path("whole")));
}

TEST_F(SaveParts, StagesInTurnOnTheRanks) {  // as interleaved lays them
  save_both(five_layers(), {{0, 2, 4}, {1, 3}});
  EXPECT_EQ(bytes(path("parts")), bytes(path("whole")));
}

TEST_F(SaveParts, BuffersAndTypesOfSeveralWidths) {
  torch::manual_seed(3);
  const Sequential whole(Linear(3, 4), BatchNorm1d(4), Linear(4, 5), BatchNorm1d(5), Linear(5, 2));
  (*(whole->begin() + 2)).ptr()->to(torch::kHalf);
  (*(whole->begin() + 3)).ptr()->to(torch::kDouble);
  for (const auto& modules :
       std::vector<std::vector<std::vector<std::size_t>>>{{{0, 1}, {2, 3, 4}}, {{0}, {1, 2}, {3, 4}}}) {
    save_both(whole, modules);
    EXPECT_EQ(bytes(path("parts")), bytes(path("whole"))) << modules.size();
  }
}

// Every tensor comes back to its own name, whoever had it, however wide it is and however it lay in memory.
TEST_F(SaveParts, EveryTensorUnderItsName) {
  const Sequential whole = five_layers();
  const auto widen = [](const Sequential& net) {  // so that a rank's tensors are not in the order of the file
    for (const std::ptrdiff_t module : {1, 2}) (*(net->begin() + module)).ptr()->to(torch::kDouble);
  };
  widen(whole);
  for (torch::Tensor& parameter : whole->parameters())
    if (parameter.dim() == 2) parameter.set_data(parameter.detach().t().contiguous().t());
  for (const auto& modules :
       std::vector<std::vector<std::vector<std::size_t>>>{{{0, 2, 4}, {1, 3}}, {{3, 4}, {0, 1}, {2}}}) {
    save_both(whole, modules);
    Sequential other(Linear(3, 4), Linear(4, 5), Linear(5, 1), Linear(1, 7), Linear(7, 2));
    widen(other);
    load_weights(path("parts"), *other);
    EXPECT_EQ(digest(other->parameters()), digest(whole->parameters()));
    EXPECT_EQ(load_tensors(path("parts")).metadata.at("depth"), "3");
  }
}

}  // namespace
}  // namespace lockstep::weights
