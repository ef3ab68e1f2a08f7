#include "lockstep/rendezvous/address.h"

#include <gtest/gtest.h>

#include "lockstep/error.h"

namespace lockstep::rendezvous {
namespace {

TEST(Address, ReadsAndWritesAllForms) {
  for (const char* text : {"127.0.0.1:29500", "[::1]:29500", "localhost:0", "unix:/tmp/job.sock", "unix:@name"})
    EXPECT_EQ(Address::parse("x", text).text(), text);
  EXPECT_EQ(Address::parse("x", "tcp://10.1.2.3:4").text(), "10.1.2.3:4");
}

TEST(Address, BadOnesNameTheVariableAndShowTheForms) {
  for (const std::string bad :
       {"", "host", "host:", "host:70000", "host:-1", ":80", "::1:80", "unix:", "unix:@", "h:8x",
        "unix:/0123456789012345678901234567890123456789012345678901234567890123456789"
        "012345678901234567890123456789012345678901234567890123456789"}) {
    try {
      Address::parse("LOCKSTEP_STORE", bad);
      ADD_FAILURE() << "'" << bad << "' passed";
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("LOCKSTEP_STORE"), std::string::npos) << error.what();
    }
  }
}

TEST(Address, KnowsWhatLeavesTheHost) {
  for (const char* text : {"127.0.0.1:1", "127.5.5.5:1", "localhost:1", "[::1]:1", "unix:/x"})
    EXPECT_TRUE(Address::parse("x", text).is_loopback()) << text;
  for (const char* text :
       {"10.0.0.1:1", "0.0.0.0:1", "[fe80::1]:1", "example:1", "127.example.com:1", "127.0.0.1.evil:1"})
    EXPECT_FALSE(Address::parse("x", text).is_loopback()) << text;
}

}  // namespace
}  // namespace lockstep::rendezvous
