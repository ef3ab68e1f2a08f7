#include "lockstep/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/error.h"

namespace lockstep::weights {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

// A folder that goes with the test.
class Safetensors : public testing::Test {
 protected:
  Safetensors() {
    std::string name = (fs::temp_directory_path() / "lockstep-XXXXXX").string();
    folder = ::mkdtemp(name.data());
    path = (folder / "weights.safetensors").string();
  }
  ~Safetensors() override { fs::remove_all(folder); }

  void write(const std::string& bytes) const { std::ofstream(path, std::ios::binary) << bytes; }
  std::string bytes() const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // A file with this header and so many bytes after it.
  void write_file(const std::string& header, std::size_t data) const {
    const std::uint64_t length = header.size();
    std::string text(sizeof length, '\0');
    std::memcpy(text.data(), &length, sizeof length);
    write(text + header + std::string(data, '\1'));
  }
  void expect_refused(const std::string& says) const {
    try {
      static_cast<void>(load_tensors(path));
      ADD_FAILURE() << "was not refused; expected: " << says;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(says));
      EXPECT_THAT(error.what(), HasSubstr(path));
    }
  }

  fs::path folder;
  std::string path;
};

torch::nn::Sequential net(int width) {
  return torch::nn::Sequential(torch::nn::Linear(3, width), torch::nn::BatchNorm1d(width), torch::nn::Linear(width, 2));
}

TEST_F(Safetensors, EveryTypeAndShapeComesBackBitForBit) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const NamedTensors tensors{
      {"bool", torch::tensor({true, false, true})},
      {"f32", torch::tensor({1.5F, -0.0F, nan, 1e-42F})},
      {"half", torch::randn({3, 5}).to(torch::kHalf)},
      {"bf16", torch::randn({7}).to(torch::kBFloat16)},
      {"f64", torch::randn({2, 3, 4}, torch::kDouble).transpose(0, 2)},
      {"i64", torch::arange(5)},
      {"i8", torch::arange(3).to(torch::kInt8)},
      {"scalar", torch::tensor(3.0F)},
      {"empty", torch::zeros({0, 4})},
      {"a \"name\" with ü", torch::ones({1})},
  };
  save_tensors(path, tensors, {{"who", "me"}});
  const Weights read = load_tensors(path);
  EXPECT_EQ(read.metadata, (Metadata{{"who", "me"}}));
  ASSERT_EQ(read.tensors.size(), tensors.size());
  const std::map<std::string, torch::Tensor> found(read.tensors.begin(), read.tensors.end());
  for (const auto& [name, tensor] : tensors) {
    const torch::Tensor& other = found.at(name);
    ASSERT_EQ(other.scalar_type(), tensor.scalar_type()) << name;
    ASSERT_EQ(other.sizes(), tensor.sizes()) << name;
    EXPECT_EQ(std::memcmp(other.data_ptr(), tensor.contiguous().data_ptr(), tensor.nbytes()), 0) << name;
  }
}

TEST_F(Safetensors, TheFileIsAlignedAndWithoutGaps) {
  save_tensors(
      path, {{"b", torch::ones({3}, torch::kByte)}, {"f", torch::ones({3})}, {"d", torch::ones({1}, torch::kDouble)}});
  const std::string text = bytes();
  std::uint64_t length = 0;
  std::memcpy(&length, text.data(), sizeof length);
  EXPECT_EQ(length % 8, 0U);
  const json header = json::parse(text.substr(8, length));
  EXPECT_EQ(header["d"]["data_offsets"], (json{0, 8}));
  EXPECT_EQ(header["f"], (json{{"dtype", "F32"}, {"shape", {3}}, {"data_offsets", {8, 20}}}));
  EXPECT_EQ(header["b"]["data_offsets"], (json{20, 23}));
  EXPECT_EQ(text.size(), 8 + length + 23);
}

TEST_F(Safetensors, SavingReplacesTheFileAndLeavesNothingElse) {
  save_tensors(path, {{"a", torch::ones({1})}});
  save_tensors(path, {{"b", torch::ones({2})}});
  EXPECT_EQ(load_tensors(path).tensors[0].first, "b");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
  EXPECT_THROW(save_tensors(path, {{"c", torch::zeros({1}, torch::kComplexFloat)}}), UsageError);
  EXPECT_EQ(load_tensors(path).tensors[0].first, "b");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
  EXPECT_THROW(save_tensors((folder / "no" / "w").string(), {}), SystemError);
}

TEST_F(Safetensors, DamagedFilesAreRefused) {
  const std::string one = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  write_file(one, 8);
  EXPECT_EQ(load_tensors(path).tensors.size(), 1U);
  const struct {
    std::string header;
    std::size_t data;
    const char* says;
  } cases[] = {
      {one, 7, "lies at bytes 0 to 8, and 7 follow"},
      {one, 9, "take 8 bytes, and 9 follow"},
      {"[]", 0, "not a JSON object"},
      {"{", 0, "not a JSON object"},
      {" {}", 0, "not a JSON object"},
      {R"({"a":1})", 0, "'a' has no proper dtype"},
      {R"({"a":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}})", 8, "unknown type 'F31'"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, "no proper shape"},
      {R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8, "no proper shape"},
      {R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", 8, "no proper shape"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8, "no proper data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "lies at bytes 8 to 0"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, "takes 12 bytes, not 8"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,0]}})", 0, "no file holds"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})", 8, "no file holds"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "begins at byte 0, and what lies before it ends at 4"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
       12, "begins at byte 8"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       1, "twice"},
      {R"({"__metadata__":{"a":1}})", 0, "__metadata__"},
      {R"({"__metadata__":[]})", 0, "__metadata__"},
  };
  for (const auto& bad : cases) {
    write_file(bad.header, bad.data);
    expect_refused(bad.says);
  }
  write("1234567");
  expect_refused("it has 7 bytes");
  write(std::string(8, '\xff') + "{}");
  expect_refused("its header has 18446744073709551615 bytes");
  write(std::string("\x03\0\0\0\0\0\0\0{}", 10));
  expect_refused("its header has 3 bytes, the whole file 10");
  write_file(std::string(100'000, '[') + "x", 0);
  expect_refused("not a JSON object");
  write_file(R"({"a":)" + std::string(100'000, '['), 0);
  expect_refused("not a JSON object");
}

// Cut anywhere, or with any byte changed, it is refused or read, and nothing worse.
TEST_F(Safetensors, EveryCutAndEveryChangedByteIsSafe) {
  save_weights(path, *net(2));
  const std::string whole = bytes();
  for (std::size_t length = 0; length < whole.size(); length += 5) {
    write(whole.substr(0, length));
    EXPECT_THROW(static_cast<void>(load_tensors(path)), UsageError) << length;
  }
  for (std::size_t place = 0; place < whole.size(); ++place) {
    std::string changed = whole;
    changed[place] = "9\x7f\xff{\0"[place % 5];
    write(changed);
    try {
      static_cast<void>(load_tensors(path));
    } catch (const UsageError&) {  // the other way that is fine
    }
  }
}

TEST_F(Safetensors, NotAFile) {
  expect_refused("No such file");
  fs::create_directory(path);
  expect_refused("not a file");
  fs::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  expect_refused("not a file");  // and does not wait for a writer
}

TEST_F(Safetensors, AModulesParametersAndBuffersComeBack) {
  auto from = net(4);
  from[1]->as<torch::nn::BatchNorm1d>()->running_mean.fill_(7);
  save_weights(path, *from);
  auto to = net(4);
  load_weights(path, *to);
  for (const auto& item : from->named_parameters())
    EXPECT_TRUE(torch::equal(item.value(), to->named_parameters()[item.key()]));
  EXPECT_TRUE(torch::equal(to[1]->as<torch::nn::BatchNorm1d>()->running_mean, torch::full({4}, 7.0F)));
  EXPECT_TRUE(to->named_parameters()["0.weight"].requires_grad());
}

TEST_F(Safetensors, WeightsOfAnotherModelAreRefusedByName) {
  const auto refused = [&](torch::nn::Sequential module, const std::string& says) {
    const auto before = module->named_parameters()["0.weight"].clone();
    try {
      load_weights(path, *module);
      ADD_FAILURE() << "was not refused";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("weights of another model"));
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
    EXPECT_TRUE(torch::equal(before, module->named_parameters()["0.weight"]));
  };
  save_weights(path, *net(4), {{"dim", "4"}});
  refused(net(5), "'0.weight' is F32 [4, 3] in the file and F32 [5, 3] here; try: the model that they are of: `dim` 4");
  save_weights(path, *net(4), {{"--dim", "4"}, {"tied", "true"}});  // the first key is as Lockstep 0.1.0 wrote it
  refused(net(5), "try: the model that they are of: `dim` 4, `tied`");
  auto wide = net(4);
  wide->to(torch::kDouble);
  refused(wide, "'0.weight' is F32 [4, 3] in the file and F64 [4, 3] here");
  refused(torch::nn::Sequential(torch::nn::Linear(3, 4)), "which is not here");
  auto deep = net(4);
  deep->push_back(torch::nn::Linear(2, 2));
  refused(deep, "it has no '3.weight'");
}

// --- files that have more than a rank wants ---

// Modules 1 and 2 of net(4), as a stage has them.
torch::nn::Sequential upper() {
  torch::nn::Sequential part;
  part->push_back("1", torch::nn::BatchNorm1d(4));
  part->push_back("2", torch::nn::Linear(4, 2));
  return part;
}
bool in_module_0(const std::string& name) { return name.starts_with("0."); }

struct Tied : torch::nn::Module {
  Tied() {
    first = register_module("first", torch::nn::Linear(3, 3));
    again = register_parameter("again", first->weight);
  }
  torch::nn::Linear first{nullptr};
  torch::Tensor again;
};

TEST_F(Safetensors, ATensorWithTwoNamesIsLoadedIfBothAreTheSame) {
  Tied tied;
  tied.again.detach().fill_(std::numeric_limits<float>::quiet_NaN());  // equal to nothing, but the same bits
  save_weights(path, tied);
  EXPECT_NO_THROW(load_weights(path, tied));
  save_tensors(
      path, {{"again", torch::ones({3, 3})}, {"first.weight", torch::zeros({3, 3})}, {"first.bias", torch::ones(3)}});
  EXPECT_THAT(
      [&] { load_weights(path, tied); },
      testing::ThrowsMessage<UsageError>(HasSubstr("'again' and 'first.weight' are one tensor here, and differ")));
}

TEST_F(Safetensors, APartOfAModelTakesItsTensorsFromTheWholesFile) {
  auto whole = net(4);
  whole[1]->as<torch::nn::BatchNorm1d>()->running_mean.fill_(7);
  save_weights(path, *whole);
  auto part = upper();
  load_weights(path, *part, in_module_0);
  const auto want = tensors_of(*whole);
  const std::map<std::string, torch::Tensor> all(want.begin(), want.end());
  for (const auto& [name, tensor] : tensors_of(*part)) EXPECT_TRUE(torch::equal(tensor, all.at(name))) << name;
  EXPECT_EQ(part->named_buffers()["1.running_mean"][0].item<float>(), 7);
}

TEST_F(Safetensors, WhatIsElsewhereMayHaveAnyShapeOrBeMissing) {
  auto whole = net(4);
  NamedTensors tensors = tensors_of(*whole);
  std::erase_if(tensors, [](const auto& item) { return item.first == "0.bias"; });
  tensors.front().second = torch::ones({9, 9}, torch::kHalf);
  save_tensors(path, tensors);
  EXPECT_NO_THROW(load_weights(path, *upper(), in_module_0));
}

TEST_F(Safetensors, APartIsRefusedAsAWholeIs) {
  const auto refused = [&](const NamedTensors& tensors, const std::string& says) {
    save_tensors(path, tensors);
    auto part = upper();
    const torch::Tensor before = part->named_parameters()["2.weight"].clone();
    try {
      load_weights(path, *part, in_module_0);
      ADD_FAILURE() << "was not refused: " << says;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("weights of another model"));
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
    EXPECT_TRUE(torch::equal(before, part->named_parameters()["2.weight"]));
  };
  const NamedTensors good = tensors_of(*net(4));
  NamedTensors bad = good;
  std::erase_if(bad, [](const auto& item) { return item.first == "2.bias"; });
  refused(bad, "it has no '2.bias', which is F32 [2] here");
  bad = good;
  bad.emplace_back("3.weight", torch::ones({2, 2}));
  refused(bad, "it has '3.weight', F32 [2, 2], which is not here");
  bad = good;
  for (auto& [name, tensor] : bad)
    if (name == "2.weight") tensor = torch::ones({2, 5});
  refused(bad, "'2.weight' is F32 [2, 5] in the file and F32 [2, 4] here");
}

// Those that are not wanted take no memory, but the file is whole all the same.
TEST_F(Safetensors, OnlyWhatIsWantedIsRead) {
  save_tensors(path, {{"a", torch::ones({2})}, {"b", torch::ones({3})}, {"c", torch::ones({4})}}, {{"who", "me"}});
  const Weights read = load_tensors(path, [](const std::string& name) { return name != "b"; });
  ASSERT_EQ(read.tensors.size(), 2U);
  EXPECT_EQ(read.tensors[0].first, "a");
  EXPECT_EQ(read.tensors[1].first, "c");
  EXPECT_TRUE(torch::equal(read.tensors[1].second, torch::ones({4})));
  EXPECT_EQ(read.metadata, (Metadata{{"who", "me"}}));
  write(bytes().substr(0, bytes().size() - 1));
  EXPECT_THROW(load_tensors(path, [](const std::string& name) { return name == "a"; }), UsageError);
  write_file(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U9","shape":[1],"data_offsets":[1,2]}})",
      2);
  EXPECT_THROW(load_tensors(path, [](const std::string& name) { return name == "a"; }), UsageError);
}

TEST_F(Safetensors, TensorsCanComeOneAtATimeInTheOrderOfTheFile) {
  const NamedTensors tensors{{"b", torch::ones({3}, torch::kByte)},
                             {"f", torch::full({2, 2}, 2.0F)},
                             {"d", torch::ones({1}, torch::kDouble)},
                             {"g", torch::full({0, 2}, 2.0F)}};
  save_tensors(path, tensors, {{"who", "me"}});
  const std::string want = bytes();
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : tensors) specs.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
  std::vector<std::size_t> asked;
  save_tensors(path, specs,
               [&](std::size_t i) {
                 asked.push_back(i);
                 return tensors[i].second;
               },
               {{"who", "me"}});
  EXPECT_EQ(asked, (std::vector<std::size_t>{2, 1, 3, 0}));
  EXPECT_EQ(bytes(), want);
  const auto failing = [](std::size_t) -> torch::Tensor { throw Error("a rank is gone"); };
  EXPECT_THROW(save_tensors(path, specs, failing), Error);
  EXPECT_EQ(bytes(), want);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
}

// Once it took time with the square of their number: 77 s for these.
TEST_F(Safetensors, ManyTensorsAreReadInAMoment) {
  constexpr int kTensors = 40'000;
  std::string header = "{";
  for (int i = 0; i < kTensors; ++i)
    header += (i == 0 ? "" : ",") + std::string("\"layers.") + std::to_string(i) +
              R"(.weight":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  write_file(header + "}", 0);
  const auto began = Clock::now();
  EXPECT_EQ(load_tensors(path).tensors.size(), static_cast<std::size_t>(kTensors));
  EXPECT_LT(Clock::now() - began, 20s);
}

}  // namespace
}  // namespace lockstep::weights
