#include "lockstep/weights/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <memory>

#include "lockstep/error.h"

namespace lockstep::weights {

std::string digest(const std::vector<torch::Tensor>& tensors) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  std::array<unsigned char, EVP_MAX_MD_SIZE> hash{};
  unsigned length = 0;
  bool fine = context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  for (const torch::Tensor& tensor : tensors) {
    const torch::Tensor flat = tensor.detach().contiguous();
    fine = fine && EVP_DigestUpdate(context.get(), flat.data_ptr(), flat.nbytes()) == 1;
  }
  fine = fine && EVP_DigestFinal_ex(context.get(), hash.data(), &length) == 1;
  if (!fine) throw Error("OpenSSL can't make a SHA-256 digest");
  std::string hex;
  for (unsigned i = 0; i < length; ++i) hex += fmt::format("{:02x}", hash[i]);
  return hex;
}

}  // namespace lockstep::weights
