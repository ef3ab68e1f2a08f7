#include "lockstep/rendezvous/secret.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "lockstep/error.h"

namespace lockstep::rendezvous {
namespace {

const std::string kGood = "0123456789abcdef";

class SecretTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::unsetenv("LOCKSTEP_SECRET");
    ::unsetenv("LOCKSTEP_SECRET_FILE");
  }
  void TearDown() override {
    SetUp();
    ::unlink(path_.c_str());
  }
  void write_file(const std::string& text, mode_t mode) {
    ::unlink(path_.c_str());
    std::ofstream(path_) << text;
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
    ::setenv("LOCKSTEP_SECRET_FILE", path_.c_str(), 1);
  }
  static std::string objection() {
    try {
      secret_from_environment();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  }
  const std::string path_ = ::testing::TempDir() + "lockstep-secret-" + std::to_string(::getpid());
};

TEST_F(SecretTest, ComesFromTheVariableOrTheFile) {
  EXPECT_EQ(secret_from_environment(), "");
  ::setenv("LOCKSTEP_SECRET", kGood.c_str(), 1);
  EXPECT_EQ(secret_from_environment(), kGood);
  ::unsetenv("LOCKSTEP_SECRET");
  write_file(kGood + "\n", 0600);
  EXPECT_EQ(secret_from_environment(), kGood) << "without the last line's end";
  write_file(kGood, 0400);
  EXPECT_EQ(secret_from_environment(), kGood);
}

TEST_F(SecretTest, AShortOneIsRefusedAndNotShown) {
  ::setenv("LOCKSTEP_SECRET", "abc", 1);
  EXPECT_NE(objection().find("has 3 bytes"), std::string::npos) << objection();
  EXPECT_EQ(objection().find("abc"), std::string::npos) << "a message must not show the secret";
  ::setenv("LOCKSTEP_SECRET", kGood.substr(1).c_str(), 1);
  EXPECT_NE(objection().find("has 15 bytes"), std::string::npos) << objection();
  ::unsetenv("LOCKSTEP_SECRET");
  write_file("\n", 0600);
  EXPECT_NE(objection().find("has 0 bytes"), std::string::npos) << objection();
}

TEST_F(SecretTest, AFileThatOthersCanReadIsRefused) {
  for (const mode_t mode : {0640, 0604, 0620, 0602, 0644}) {
    write_file(kGood, mode);
    EXPECT_NE(objection().find("others can read or change it"), std::string::npos) << mode << ": " << objection();
  }
}

TEST_F(SecretTest, AFileOfAnotherUserIsRefused) {
  write_file(kGood, 0600);
  if (::chown(path_.c_str(), 65534, 65534) != 0) GTEST_SKIP() << "only root can give a file to another user";
  EXPECT_NE(objection().find("(uid 65534), who can change it"), std::string::npos) << objection();
}

TEST_F(SecretTest, WhatIsNoFileIsRefused) {
  ::setenv("LOCKSTEP_SECRET_FILE", "/no/such/file", 1);
  EXPECT_NE(objection().find("No such file"), std::string::npos) << objection();
  ::setenv("LOCKSTEP_SECRET_FILE", "/", 1);
  EXPECT_NE(objection().find("not a regular file"), std::string::npos) << objection();
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);  // must not wait for somebody to write into it
  ::setenv("LOCKSTEP_SECRET_FILE", path_.c_str(), 1);
  EXPECT_NE(objection().find("not a regular file"), std::string::npos) << objection();
}

TEST_F(SecretTest, BothAtOnceAreRefused) {
  write_file(kGood, 0600);
  ::setenv("LOCKSTEP_SECRET", kGood.c_str(), 1);
  EXPECT_NE(objection().find("both set"), std::string::npos) << objection();
}

}  // namespace
}  // namespace lockstep::rendezvous
