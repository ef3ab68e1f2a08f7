#include "lockstep/cli/with_flags.h"

#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

TEST(WithFlags, SettingsBecomeFlags) {
  EXPECT_EQ(with_flags("both `batch` 4 and `batch_per_rank` 2; try: one of them"),
            "both --batch 4 and --batch-per-rank 2; try: one of them");
  EXPECT_EQ(with_flags("`emulate` is of one"), "--emulate-compute is of one");
}

TEST(WithFlags, OtherTextStays) {
  for (const char* text :
       {"", "`", "no setting", "`two words` and `Upper`", "`` `unfinished", "a file `x.csv`", "by an `author`"})
    EXPECT_EQ(with_flags(text), text);
}

}  // namespace
}  // namespace lockstep::cli
