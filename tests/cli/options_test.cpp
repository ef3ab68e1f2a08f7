#include "lockstep/cli/benchmark/options.h"

#include <gmock/gmock.h>

#include "lockstep/error.h"

namespace lockstep::cli::benchmark {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::string>;

std::string error_of(const Words& words) {
  try {
    parse(words);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "none";
}

TEST(BenchOptions, SizesAreThoseOfNcclTests) {
  EXPECT_THAT(parse(Words{"all_reduce", "-b", "8", "-e", "1K", "-f", "4"}).sizes, ElementsAre(8, 32, 128, 512));
  EXPECT_THAT(parse(Words{"all_reduce", "-b", "1K", "-e", "3K", "-i", "1K"}).sizes, ElementsAre(1024, 2048, 3072));
  EXPECT_THAT(parse(Words{"all_reduce", "--minbytes=8", "--maxbytes=8"}).sizes, ElementsAre(8));
  EXPECT_THAT(parse(Words{"all_reduce", "--size", "100M,4"}).sizes, ElementsAre(100U << 20, 4));
  const auto sweep = parse(Words{"all_reduce", "--sweep"}).sizes;
  EXPECT_EQ(sweep.size(), 25U);
  EXPECT_EQ(sweep.back(), 128U << 20);
  EXPECT_THAT(parse(Words{"barrier"}).sizes, ElementsAre(0));
}

TEST(BenchOptions, ShortNamesOfNcclTests) {
  const auto options = parse(Words{"reduce", "-d", "half", "-o", "avg", "-r", "1", "-n", "20", "-w", "2", "-c", "0"});
  EXPECT_THAT(options.dtypes, ElementsAre(DType::float16));
  EXPECT_THAT(options.reduce_ops, ElementsAre(ReduceOp::mean));
  EXPECT_EQ(options.root, 1);
  EXPECT_EQ(options.iterations, 20);
  EXPECT_EQ(options.warmup, 2);
  EXPECT_FALSE(options.check);
}

TEST(BenchOptions, SeveralOfEach) {
  const auto options =
      parse(Words{"all_reduce", "--transport", "shm,tcp", "--algorithm", "ring,direct", "--buffer", "arena,private"});
  EXPECT_THAT(options.transports, ElementsAre(TransportKind::shm, TransportKind::tcp));
  EXPECT_THAT(options.algorithms, ElementsAre(Algorithm::ring, Algorithm::direct));
  EXPECT_THAT(options.buffers, ElementsAre(measure::BufferKind::arena, measure::BufferKind::private_memory));
  EXPECT_EQ(parse(Words{"all_reduce", "--algorithm", "all"}).algorithms.size(), 7U);
}

TEST(BenchOptions, WhatCannotBeIsSaid) {
  EXPECT_THAT(error_of({}), HasSubstr("no op to measure"));
  EXPECT_THAT(error_of({"all_reduc"}), HasSubstr("try: all_reduce"));
  EXPECT_THAT(error_of({"all_reduce", "gather"}), HasSubstr("'gather' is one word too many"));
  EXPECT_THAT(error_of({"all_reduce", "--algorithm", "rnig"}), HasSubstr("try: ring"));
  EXPECT_THAT(error_of({"broadcast", "--algorithm", "halving_doubling"}), HasSubstr("has no algorithm"));
  EXPECT_THAT(error_of({"p2p", "--algorithm", "ring"}), HasSubstr("p2p has no algorithms"));
  EXPECT_THAT(error_of({"all_reduce", "--transport", "ib"}), HasSubstr("one of auto, shm, tcp"));
  EXPECT_THAT(error_of({"all_reduce", "--buffer", "gpu"}), HasSubstr("one of arena, private"));
  EXPECT_THAT(error_of({"all_reduce", "-b", "2K", "-e", "1K"}), HasSubstr("-b 2048 is more than -e 1024"));
  EXPECT_THAT(error_of({"all_reduce", "-e", "1M", "-i", "8"}), HasSubstr("more than 200 sizes"));
  EXPECT_THAT(error_of({"all_reduce", "-o", "mean", "-d", "int32"}), HasSubstr("no mean of int32"));
  EXPECT_THAT(error_of({"all_reduce", "--min-bw", "fast"}), HasSubstr("--min-bw is 'fast'"));
}

TEST(BenchOptions, AllTypesAndReductions) {
  const auto options = parse(Words{"all_reduce", "-d", "all", "-o", "all"});
  EXPECT_EQ(options.dtypes.size(), all_dtypes().size());
  EXPECT_EQ(options.reduce_ops.size(), all_reduce_ops().size());
}

TEST(BenchOptions, FlagsThatWouldChangeNothingAreRefused) {
  EXPECT_THAT(error_of({"all_reduce", "-i", "0"}), HasSubstr("-i is 0"));
  EXPECT_THAT(error_of({"all_reduce", "--sweep", "--size", "8"}),
              HasSubstr("--sweep chooses sizes, and so does --size"));
  EXPECT_THAT(error_of({"all_reduce", "--size", "8", "--minbytes", "8"}), HasSubstr("-b chooses sizes"));
  EXPECT_THAT(error_of({"all_reduce", "-i", "8", "-f", "2"}), HasSubstr("-f is a factor"));
  EXPECT_THAT(error_of({"all_reduce", "-n", "8", "--time", "2"}), HasSubstr("--time says how long"));
  EXPECT_THAT(error_of({"all_reduce", "--buffer", "arena", "--transport", "tcp"}), HasSubstr("shares none"));
  EXPECT_EQ(error_of({"all_reduce", "--buffer", "arena", "--transport", "tcp,shm"}), "none");
  EXPECT_THAT(error_of({"all_reduce", "-c", "2"}), HasSubstr("-c is '2'"));
  EXPECT_THAT(error_of({"all_reduce", "--size", "7"}), HasSubstr("try: --size 8"));
  EXPECT_EQ(error_of({"all_reduce", "--size", "7", "-d", "int8"}), "none");
  EXPECT_THAT(error_of({"all_gather", "-o", "sum"}), HasSubstr("reduces nothing"));
  EXPECT_THAT(error_of({"all_reduce", "--root", "0"}), HasSubstr("has no root"));
  EXPECT_THAT(error_of({"barrier", "--sweep"}), HasSubstr("moves no data"));
  EXPECT_THROW(check_world(parse(Words{"p2p"}), 1), UsageError);
  EXPECT_NO_THROW(check_world(parse(Words{"p2p"}), 2));
  EXPECT_THROW(check_world(parse(Words{"broadcast", "--root", "2"}), 2), UsageError);
}

TEST(BenchOptions, HelpStartsWithExamples) { EXPECT_TRUE(help().starts_with("Examples:\n")); }

}  // namespace
}  // namespace lockstep::cli::benchmark
