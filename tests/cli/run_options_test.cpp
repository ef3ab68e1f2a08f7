#include "lockstep/cli/running/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/cpu.h"
#include "lockstep/error.h"

namespace lockstep::cli::running {
namespace {

using Words = std::vector<std::string>;
using ::testing::HasSubstr;

using launch::Options;

Options parsed(const Words& words) { return parse(words).value(); }

std::string complaint(const Words& words) {
  try {
    parsed(words);
  } catch (const UsageError& error) {
    EXPECT_EQ(error.exit_code(), kExitUsage);
    EXPECT_THAT(error.what(), HasSubstr("; try: "));
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(RunOptions, TheFirstWordThatIsNoFlagBeginsTheProgram) {
  const Words program = {"prog", "-n", "7", "--", "--help"};
  for (const Words& before : {Words{"-n", "4"}, Words{"-n", "4", "--"}}) {
    Words words = before;
    words.insert(words.end(), program.begin(), program.end());
    const Options options = parsed(words);
    EXPECT_EQ(options.ranks, 4);
    EXPECT_EQ(options.command, program);
  }
  EXPECT_EQ(parsed({"--", "--odd-name"}).command, Words{"--odd-name"});
  EXPECT_EQ(parsed({"prog"}).ranks, 1);
}

TEST(RunOptions, KnowsTorchrunsSpellings) {
  for (const Words& words :
       {Words{"-n", "3", "p"}, Words{"-np", "3", "p"}, Words{"-n=3", "p"}, Words{"--nproc-per-node", "3", "p"},
        Words{"--nproc_per_node", "3", "p"}, Words{"--nproc-per-node=3", "p"}, Words{"--nproc_per_node=3", "p"}})
    EXPECT_EQ(parsed(words).ranks, 3) << words[0];
  EXPECT_EQ(parsed({"-n", "auto", "p"}).ranks, allowed_cores());
  EXPECT_EQ(parsed({"-n", "cpu", "p"}).ranks, allowed_cores());
  const Options options = parsed({"--standalone", "--nnodes=1", "--node_rank", "0", "--no-python", "--max-restarts=0",
                                  "--master_addr", "localhost", "--master-port=29511", "--grace", "0.5", "p"});
  EXPECT_EQ(options.master_addr, "localhost");
  EXPECT_EQ(options.master_port, 29511);
  EXPECT_EQ(options.grace, 500ms);
}

TEST(RunOptions, StreamsGoToConsoleAndFiles) {
  const auto where = [](Words words) {
    words.push_back("p");
    const Options options = parsed(words);
    return std::pair(options.to_console, options.to_file);
  };
  EXPECT_EQ(where({}), std::pair(3U, 0U));
  EXPECT_EQ(where({"--log-dir", "d"}), std::pair(3U, 3U));
  EXPECT_EQ(where({"--log-dir", "d", "--tee", "1"}), std::pair(3U, 1U));
  EXPECT_EQ(where({"--log-dir", "d", "-t", "0"}), std::pair(3U, 0U));
  EXPECT_EQ(where({"--log-dir", "d", "-r", "3"}), std::pair(0U, 3U));
  EXPECT_EQ(where({"--log_dir=d", "--redirects=1"}), std::pair(2U, 1U));
  EXPECT_EQ(where({"--log-dir", "d", "-r", "3", "-t", "2"}), std::pair(2U, 3U));
}

TEST(RunOptions, SaysWhatIsWrong) {
  EXPECT_THAT(complaint({}), HasSubstr("no program"));
  EXPECT_THAT(complaint({"-n", "2", "--"}), HasSubstr("no program"));
  for (const char* count : {"0", "-1", "two", "", "1.5", "99999999999999999999", "4 ", "5000"})
    EXPECT_THAT(complaint({"-n", count, "p"}), HasSubstr(std::string("'") + count + "'"));
  EXPECT_THAT(complaint({"-n"}), HasSubstr("-n needs a value"));
  EXPECT_THAT(complaint({"--log-dir", "--", "p"}), HasSubstr("--log-dir needs a value"));
  EXPECT_THAT(complaint({"-n", "gpu", "p"}), HasSubstr("CPU"));
  EXPECT_THAT(complaint({"--nproc", "2", "p"}), HasSubstr("--nproc is not a flag"));
  EXPECT_THAT(complaint({"--masterport", "2", "p"}), HasSubstr("try: --master-port"));
  EXPECT_THAT(complaint({"-x", "p"}), HasSubstr("-x is not a flag"));
  EXPECT_THAT(complaint({"--nnodes", "2", "p"}), HasSubstr("--nnodes 2 is not supported yet"));
  EXPECT_THAT(complaint({"--node-rank", "1", "p"}), HasSubstr("--node-rank 1 is not supported yet"));
  EXPECT_THAT(complaint({"--max-restarts", "3", "p"}), HasSubstr("--max-restarts 3 is not supported yet"));
  EXPECT_THAT(complaint({"--master-port", "65536", "p"}), HasSubstr("65536"));
  EXPECT_THAT(complaint({"--master-addr=", "p"}), HasSubstr("empty"));
  EXPECT_THAT(complaint({"--tee", "4", "--log-dir", "d", "p"}), HasSubstr("--tee is '4'"));
  EXPECT_THAT(complaint({"--tee", "3", "p"}), HasSubstr("--log-dir"));
  EXPECT_THAT(complaint({"--standalone=1", "p"}), HasSubstr("takes no value"));
  for (const char* grace : {"-1", "x", "", "nan", "1e9"})
    EXPECT_THAT(complaint({"--grace", grace, "p"}), HasSubstr("seconds"));
}

TEST(RunOptions, HelpBeginsWithExamplesAndNamesEveryFlag) {
  EXPECT_FALSE(parse(Words{"-n", "2", "--help"}).has_value());
  for (const Words& words : {Words{"--help", "--no-such-flag"}, Words{"-h", "-n", "0"}, Words{"--help", "-n"}})
    EXPECT_FALSE(parse(words).has_value()) << words[1];
  EXPECT_TRUE(help().starts_with("Examples:\n  lockstep run -n 4"));
  for (const char* flag : {"-np", "--nproc-per-node", "--log-dir", "--tee", "--redirects", "--grace", "--master-port"})
    EXPECT_THAT(help(), HasSubstr(flag));
}

}  // namespace
}  // namespace lockstep::cli::running
