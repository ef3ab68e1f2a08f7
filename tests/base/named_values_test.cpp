#include "lockstep/named_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "lockstep/error.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::StrEq;

enum class Color { red, dark_green };

constexpr auto kColors =
    named_values<Color>("color", {{Color::red, "red"}, {Color::dark_green, "dark-green", "the color of firs"}});

TEST(NamedValues, FindANameForAValueAndAValueForAName) {
  static_assert(kColors.find("dark-green") == Color::dark_green, "no function runs at the start of a program");
  EXPECT_STREQ(kColors.name_of(Color::dark_green), "dark-green");
  EXPECT_EQ(kColors.parse("red"), Color::red);
  EXPECT_EQ(kColors.find("Red"), std::nullopt);
  EXPECT_EQ(kColors.find(""), std::nullopt);
  EXPECT_THROW(kColors.name_of(static_cast<Color>(2)), std::out_of_range);
}

TEST(NamedValues, AreListedInTheOrderOfTheEnumerators) {
  EXPECT_THAT(kColors.names(), ElementsAre("red", "dark-green"));
  EXPECT_EQ(kColors.size(), 2U);
  EXPECT_STREQ(kColors.begin()[0].help, "");
  EXPECT_STREQ(kColors.begin()[1].help, "the color of firs");
}

TEST(NamedValues, SuggestTheNearestNameOrAllOfThem) {
  EXPECT_THAT([] { kColors.parse("dark_green"); },
              testing::ThrowsMessage<UsageError>(StrEq("there is no color 'dark_green'; try: dark-green")));
  EXPECT_THAT([] { kColors.parse("violet"); },
              testing::ThrowsMessage<UsageError>(StrEq("there is no color 'violet'; try: one of red, dark-green")));
}

}  // namespace
}  // namespace lockstep
