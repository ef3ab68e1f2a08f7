#include <ATen/Parallel.h>
#include <gtest/gtest.h>

int main(int argc, char** argv) {
  at::set_num_threads(1);  // ranks are threads here, and models small
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
