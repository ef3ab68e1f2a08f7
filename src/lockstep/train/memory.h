// How much memory this process uses.
#pragma once

#include <cstddef>

namespace lockstep::train {

// The largest resident size so far.
std::size_t peak_bytes();

// Proportional set size: a page that n processes share counts 1/n. Takes milliseconds, because the kernel walks over
// all pages.
std::size_t pss_bytes();

}  // namespace lockstep::train
