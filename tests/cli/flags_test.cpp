#include "lockstep/cli/flags.h"

#include <gmock/gmock.h>

#include "lockstep/base/clock.h"
#include "lockstep/error.h"

namespace lockstep::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Flags : public testing::Test {
 protected:
  std::vector<std::string> read(const std::vector<std::string>& arguments) {
    const std::vector<Flag> flags = {
        {{"-n", "--step-factor"}, "N", "a number", [this](const auto&, const auto& value) { number_ = value; }},
        {{"--json"}, nullptr, "a switch", [this](const auto&, const auto&) { json_ = true; }},
    };
    return read_flags(flags, "test", arguments);
  }
  std::string error_of(const std::vector<std::string>& arguments) {
    try {
      read(arguments);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "none";
  }
  std::string number_;
  bool json_ = false;
};

TEST_F(Flags, ComeAnywhereInAnySpelling) {
  EXPECT_THAT(read({"one", "-n", "3", "two", "--json"}), ElementsAre("one", "two"));
  EXPECT_EQ(number_, "3");
  EXPECT_TRUE(json_);
  read({"--step_factor=4"});
  EXPECT_EQ(number_, "4");
  read({"--step-factor", "-5"});
  EXPECT_EQ(number_, "-5");
}

TEST_F(Flags, AnErrorNamesTheNearestOne) {
  EXPECT_THAT(error_of({"--jsn"}), HasSubstr("--jsn is not a flag of lockstep test; try: --json"));
  EXPECT_THAT(error_of({"-z"}), HasSubstr("try: lockstep test --help"));
  EXPECT_THAT(error_of({"-n"}), HasSubstr("-n needs a value"));
  EXPECT_THAT(error_of({"--json=yes"}), HasSubstr("--json takes no value"));
}

TEST_F(Flags, ListsAndNumbers) {
  EXPECT_THAT(split_list("--x", "a,b"), ElementsAre("a", "b"));
  for (const char* bad : {"", "a,,b", "a,"}) EXPECT_THROW(split_list("--x", bad), UsageError) << bad;
  EXPECT_DOUBLE_EQ(parse_number("--x", "1.5", 0), 1.5);
  for (const char* bad : {"", "x", "1x", "-1", "nan", "inf"}) EXPECT_THROW(parse_number("--x", bad, 0), UsageError);
}

TEST_F(Flags, TimesHaveAUnit) {
  EXPECT_DOUBLE_EQ(parse_seconds("--x", "10ms"), 0.010);
  EXPECT_DOUBLE_EQ(parse_seconds("--x", "1.5s"), 1.5);
  EXPECT_DOUBLE_EQ(parse_seconds("--x", "250us"), 250e-6);
  EXPECT_DOUBLE_EQ(parse_seconds("--x", "3600s"), 3600);
  for (const char* bad : {"", "10", "ms", "10 ms", "10min", "10msx", "-1ms", "1e3ms", "1.2.3ms", ".ms", "nans", "infs"})
    EXPECT_THROW(parse_seconds("--x", bad), UsageError) << bad;
}

TEST_F(Flags, ATimeThatCannotBeIsNamed) {
  const auto said = [](const char* value) -> std::string {
    try {
      parse_seconds("--x", value);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_THAT(said("10"), HasSubstr("--x is '10', which is not a time; try: 10ms"));
  EXPECT_THAT(said("0ms"), HasSubstr("--x is '0ms'; try: more than 0"));
  EXPECT_THAT(said("3601s"), HasSubstr("at most an hour"));
}

}  // namespace
}  // namespace lockstep::cli
