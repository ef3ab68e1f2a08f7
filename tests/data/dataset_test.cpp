// MNIST's files, small ones made here and the real ones.
#include "lockstep/data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "files.h"
#include "lockstep/error.h"
#include "numerics.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kImages = "train-images-idx3-ubyte";
constexpr auto kLabels = "train-labels-idx1-ubyte";

std::string refusal(DataKind kind, const fs::path& folder, Split split = Split::train) {
  try {
    load(kind, split, folder);
  } catch (const UsageError& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

// A small data set of 12 images.
struct Small : Folder {
  Small() {
    write(kImages, idx_file({12, 28, 28}));
    write(kLabels, idx_file({12}, 10));
  }
};

// The working folder and the variable as a test wants them, and back.
class Surroundings {
 public:
  Surroundings(const fs::path& working, const fs::path& data) : before_(fs::current_path()) {
    fs::current_path(working);
    data.empty() ? unsetenv("LOCKSTEP_DATA") : setenv("LOCKSTEP_DATA", data.c_str(), 1);
  }
  Surroundings(const Surroundings&) = delete;
  ~Surroundings() {
    fs::current_path(before_);
    unsetenv("LOCKSTEP_DATA");
  }

 private:
  fs::path before_;
};

TEST(Dataset, ReadsAndNormalises) {
  const Small folder;
  const Dataset dataset = load(DataKind::mnist, Split::train, folder.path());
  ASSERT_EQ(dataset.size(), 12);
  EXPECT_EQ(dataset.images.sizes().vec(), (std::vector<std::int64_t>{12, 1, 28, 28}));
  EXPECT_EQ(dataset.labels.scalar_type(), torch::kInt64);
  EXPECT_TRUE(torch::equal(dataset.labels, torch::arange(12, torch::kInt64).remainder(10)));
  const torch::Tensor pixels = torch::arange(12 * 28 * 28).remainder(256).to(torch::kFloat32).view({12, 1, 28, 28});
  EXPECT_TRUE(test::close(dataset.images, (pixels / 255 - 0.1307) / 0.3081));
}

TEST(Dataset, TheTwoAreNormalisedDifferently) {
  const Small folder;
  EXPECT_FALSE(test::close(load(DataKind::mnist, Split::train, folder.path()).images,
                           load(DataKind::fashion_mnist, Split::train, folder.path()).images));
}

TEST(Dataset, SplitsAreDifferentFiles) {
  const Small folder;
  folder.write("t10k-images-idx3-ubyte.gz", gzipped(idx_file({3, 28, 28})));
  folder.write("t10k-labels-idx1-ubyte", idx_file({3}));
  EXPECT_EQ(load(DataKind::mnist, Split::train, folder.path()).size(), 12);
  EXPECT_EQ(load(DataKind::mnist, Split::test, folder.path()).size(), 3);
}

TEST(Dataset, LooksUnderTheNameFirst) {
  const Small folder;
  fs::create_directory(folder / "mnist");
  folder.write(std::string("mnist/") + kImages, idx_file({2, 28, 28}));
  folder.write(std::string("mnist/") + kLabels, idx_file({2}));
  EXPECT_EQ(load(DataKind::mnist, Split::train, folder.path()).size(), 2);
  EXPECT_EQ(load(DataKind::fashion_mnist, Split::train, folder.path()).size(), 12);
}

TEST(Dataset, LooksInTheVariablesFolderAndThenInTheWorkingFolder) {
  const Folder working, data;
  fs::create_directories(working / "data/mnist");
  fs::create_directories(data / "mnist");
  working.write(std::string("data/mnist/") + kImages, idx_file({2, 28, 28}));
  working.write(std::string("data/mnist/") + kLabels, idx_file({2}));
  {
    const Surroundings here(working.path(), data.path());
    EXPECT_EQ(load(DataKind::mnist, Split::train).size(), 2) << "nothing in the variable's folder yet";
    data.write(std::string("mnist/") + kImages, idx_file({5, 28, 28}));
    data.write(std::string("mnist/") + kLabels, idx_file({5}));
    EXPECT_EQ(load(DataKind::mnist, Split::train).size(), 5);
  }
  const Surroundings here(working.path(), "");
  EXPECT_EQ(load(DataKind::mnist, Split::train).size(), 2);
}

TEST(Dataset, SaysWhereItLookedAndWhatToDo) {
  const Folder empty;
  const Surroundings here(empty.path(), "/no/such/folder");
  EXPECT_THAT(refusal(DataKind::mnist, ""), AllOf(HasSubstr("/no/such/folder/mnist, data/mnist"), HasSubstr(kImages),
                                                  HasSubstr("try: ./dev data mnist")));
  EXPECT_THAT(refusal(DataKind::fashion_mnist, empty.path()),
              AllOf(HasSubstr(empty.path().string()), HasSubstr("apt-get install dataset-fashion-mnist")));
}

TEST(Dataset, OnlySomeDataHasFiles) {
  EXPECT_THAT(refusal(DataKind::synthetic, ""),
              HasSubstr("synthetic data has no files; try: one of mnist, fashion-mnist"));
}

TEST(Dataset, RefusesDamagedFiles) {
  const Small folder;
  folder.write(kImages, gzipped(idx_file({12, 28, 28})).substr(0, 300));
  EXPECT_THAT(refusal(DataKind::mnist, folder.path()),
              AllOf(HasSubstr("truncated"), HasSubstr("try: ./dev data mnist")));
  EXPECT_THAT(refusal(DataKind::fashion_mnist, folder.path()),
              HasSubstr("apt-get install --reinstall dataset-fashion-mnist"));
}

TEST(Dataset, RefusesFilesThatDoNotGoTogether) {
  const Small folder;
  folder.write(kLabels, idx_file({11}, 10));
  EXPECT_THAT(refusal(DataKind::mnist, folder.path()), AllOf(HasSubstr("has 12 images"), HasSubstr("has 11 labels")));
  folder.write(kLabels, idx_file({12}, 11));
  EXPECT_THAT(refusal(DataKind::mnist, folder.path()), HasSubstr("has the label 10 at place 10"));
  folder.write(kLabels, idx_file({12}, 10));
  folder.write(kImages, idx_file({12, 28, 27}));
  EXPECT_THAT(refusal(DataKind::mnist, folder.path()), HasSubstr("has images of 28x27, not 28x28"));
  folder.write(kImages, idx_file({0, 28, 28}));
  EXPECT_THAT(refusal(DataKind::mnist, folder.path()), HasSubstr("has no images"));
  folder.write(kImages, idx_file({12}));
  EXPECT_THAT(refusal(DataKind::mnist, folder.path()), HasSubstr("has 1 dimensions"));
}

void expect_real(const Dataset& train, const Dataset& test) {
  EXPECT_EQ(train.size(), 60000);
  EXPECT_EQ(test.size(), 10000);
  EXPECT_NEAR(train.images.mean().item<double>(), 0, 1e-3);
  EXPECT_NEAR(train.images.std().item<double>(), 1, 1e-3);
  EXPECT_EQ(test.labels.bincount().numel(), 10);
}

TEST(RealData, FashionMnist) {
  if (!fs::exists("/usr/share/datasets/fashion-mnist")) GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  const Folder empty;
  const Surroundings here(empty.path(), "");
  const Dataset train = load(DataKind::fashion_mnist, Split::train);
  expect_real(train, load(DataKind::fashion_mnist, Split::test));
  EXPECT_TRUE(torch::equal(train.labels.bincount(), torch::full({10}, 6000, torch::kInt64)));
}

TEST(RealData, Mnist) {
  if (!fs::exists(SOURCE_FOLDER "/data/mnist")) GTEST_SKIP() << "no data/mnist: ./dev data mnist was not run";
  expect_real(load(DataKind::mnist, Split::train, SOURCE_FOLDER "/data"),
              load(DataKind::mnist, Split::test, SOURCE_FOLDER "/data"));
}

}  // namespace
}  // namespace lockstep::data
