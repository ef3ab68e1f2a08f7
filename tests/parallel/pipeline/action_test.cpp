#include "lockstep/schedule.h"

#include <gmock/gmock.h>

#include "lockstep/error.h"

namespace lockstep::pipeline {
namespace {

using testing::HasSubstr;

TEST(PipelineAction, IsWrittenAsPyTorchWritesIt) {
  EXPECT_EQ(to_string({0, Kind::F, 0}), "0F0");
  EXPECT_EQ(to_string({1, Kind::B, 3}), "1B3");
  EXPECT_EQ(to_string({2, Kind::I, 1}), "2I1");
  EXPECT_EQ(to_string({12, Kind::W, 34}), "12W34");
  EXPECT_EQ(to_string({0, Kind::SEND_F, 0}), "0SEND_F0");
  EXPECT_EQ(to_string({1, Kind::RECV_F, 0}), "1RECV_F0");
  EXPECT_EQ(to_string({1, Kind::SEND_B, 7}), "1SEND_B7");
  EXPECT_EQ(to_string({0, Kind::RECV_B, 7}), "0RECV_B7");
}

TEST(PipelineAction, ParseIsTheInverse) {
  for (int kind = 0; kind < 8; ++kind)
    for (const int stage : {0, 1, 10, 999999})
      for (const int microbatch : {0, 7, 123456}) {
        const Action action{stage, static_cast<Kind>(kind), microbatch};
        EXPECT_EQ(parse_action(to_string(action)), action) << to_string(action);
      }
}

TEST(PipelineAction, WhatIsNoActionIsNamed) {
  for (const char* text : {"", "F", "0F", "F0", "0X0", "00", "0f0", "-1F0", "0F-1", "0F0F0", "0 F0", "0F0 ", "00F1",
                           "0F01", "0SEND0", "0SENDF0", "1234567F0", "0F99999999999999999999"}) {
    try {
      parse_action(text);
      FAIL() << text;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::string("'") + text + "' is not an action"));
      EXPECT_THAT(error.what(), HasSubstr("as in 1B3"));
    }
  }
}

TEST(PipelineAction, EveryMessageHasAnotherEnd) {
  EXPECT_EQ(to_string(other_end(parse_action("0SEND_F2"))), "1RECV_F2");
  EXPECT_EQ(to_string(other_end(parse_action("3SEND_B2"))), "2RECV_B2");
  for (const char* text : {"1SEND_F0", "1RECV_F0", "1SEND_B0", "1RECV_B0"}) {
    const Action action = parse_action(text);
    EXPECT_EQ(other_end(other_end(action)), action);
    EXPECT_NE(is_send(action.kind), is_send(other_end(action).kind));
  }
  EXPECT_THROW(other_end(parse_action("0F0")), Error);
}

}  // namespace
}  // namespace lockstep::pipeline
