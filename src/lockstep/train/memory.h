// How much memory this process has.
#pragma once

#include <cstddef>

namespace lockstep::train {

// The most that was ever resident.
std::size_t peak_bytes();

// Proportional set size: a page that n processes share counts 1/n. The kernel walks all pages: milliseconds.
std::size_t pss_bytes();

}  // namespace lockstep::train
