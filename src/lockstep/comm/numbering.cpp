#include "lockstep/comm/numbering.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include "lockstep/error.h"
#include "lockstep/rendezvous/meeting.h"
#include "lockstep/world.h"

namespace lockstep::comm {

Numbering& Numbering::of(World& world) {
  if (!world.numbering_) world.numbering_ = std::make_shared<Numbering>();
  return *world.numbering_;
}

std::uint16_t Numbering::next(std::uint32_t used) {
  const std::uint32_t number = used + 1;
  if (number > 0xffff)
    throw UsageError("65535 communicators have been made in this world, and there are no more",
                     "make one outside the loop and use it again");
  used_ = std::max(used_, number);
  return static_cast<std::uint16_t>(number);
}

std::uint16_t Numbering::next_of_all(World& world) {
  std::uint32_t used = used_;
  if (world.size() > 1)
    for (const std::string& text :
         world.meeting().exchange(fmt::format("communicator/{}", of_all_++), std::to_string(used_)))
      used = std::max(used, static_cast<std::uint32_t>(std::stoul(text)));
  return next(used);
}

}  // namespace lockstep::comm
