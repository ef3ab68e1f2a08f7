#include "lockstep/libtorch/loaded.h"

#include <gmock/gmock.h>
#include <torch/types.h>

#include "lockstep/error.h"

namespace lockstep::libtorch {
namespace {

TEST(Loaded, IsTheOneThatItWasBuiltWith) {
  ASSERT_TRUE(torch::zeros({1}).defined());  // so that the linker keeps the library
  ASSERT_EQ(built_with().size(), 2U);
  for (const Library& library : built_with()) {
    EXPECT_THAT(loaded_file(library.name), testing::HasSubstr(library.name));
    if (library.build_id.empty()) GTEST_SKIP() << library.built << " has no build ID, so it can't be recognised";
  }
  EXPECT_NO_THROW(check_loaded());
}

TEST(Loaded, AnotherBuildIsNamedWithBothFiles) {
  if (built_with()[0].build_id.empty()) GTEST_SKIP() << "this libtorch has no build ID";
  std::vector<Library> other = built_with();
  other[0].build_id = std::string(40, '0');
  other[0].built = "/elsewhere/libtorch_cpu.so";
  try {
    check_loaded(other);
    FAIL() << "nothing was said";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr(loaded_file("libtorch_cpu.so") + " has build ID " + built_with()[0].build_id));
    EXPECT_THAT(error.what(), testing::HasSubstr("/elsewhere/libtorch_cpu.so (version " + built_with_version() + ")"));
  }
}

TEST(Loaded, WhatHasNoBuildIdIsNotJudged) {
  std::vector<Library> other = built_with();
  other[0].build_id.clear();
  EXPECT_NO_THROW(check_loaded(other));
}

}  // namespace
}  // namespace lockstep::libtorch
