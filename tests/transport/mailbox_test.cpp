#include "lockstep/transport/mailbox.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "lockstep/error.h"

namespace lockstep::transport {
namespace {

struct Receive {
  explicit Receive(Tag tag, std::size_t bytes)
      : text(bytes, '.'),
        operation(Operation::Kind::recv, 1, tag, reinterpret_cast<std::byte*>(text.data()), bytes, Duration::zero()) {}
  std::string text;
  Operation operation;
};

void arrive(Mailbox& box, Tag tag, std::size_t total, const std::string& piece) {
  Incoming& message = box.message_for(tag, total, {});
  if (std::byte* to = message.destination()) std::memcpy(to, piece.data(), piece.size());
  box.advance(message, piece.size());
}

TEST(Mailbox, APostedReceiveIsFilledPieceByPiece) {
  Mailbox box(1);
  Receive receive(7, 6);
  EXPECT_EQ(box.receive(receive.operation), nullptr);
  arrive(box, 7, 6, "abc");
  EXPECT_TRUE(receive.operation.pending());
  arrive(box, 7, 6, "def");
  EXPECT_FALSE(receive.operation.pending());
  EXPECT_EQ(receive.text, "abcdef");
  EXPECT_FALSE(box.has_arrivals());
  EXPECT_EQ(box.received(), 1U);
}

TEST(Mailbox, AMessageThatCameFirstWaitsAndContinuesInTheReceivesBuffer) {
  Mailbox box(1);
  arrive(box, 7, 6, "abc");
  Receive receive(7, 6);
  box.receive(receive.operation);
  EXPECT_EQ(receive.text, "abc...");
  arrive(box, 7, 6, "def");
  EXPECT_EQ(receive.text, "abcdef");
}

TEST(Mailbox, TagsDoNotMixAndOrderHoldsWithinOne) {
  Mailbox box(1);
  arrive(box, 1, 2, "a1");
  arrive(box, 2, 2, "b");
  arrive(box, 1, 2, "a2");
  arrive(box, 2, 2, "1");
  for (const auto& [tag, want] : {std::pair<Tag, const char*>{2, "b1"}, {1, "a1"}, {1, "a2"}}) {
    Receive receive(tag, 2);
    box.receive(receive.operation);
    EXPECT_EQ(receive.text, want);
  }
}

TEST(Mailbox, EmptyMessagesCount) {
  Mailbox box(1);
  arrive(box, 1, 0, "");
  arrive(box, 1, 0, "");
  Receive first(1, 0);
  Receive second(1, 0);
  Receive third(1, 0);
  box.receive(first.operation);
  box.receive(second.operation);
  box.receive(third.operation);
  EXPECT_FALSE(first.operation.pending());
  EXPECT_FALSE(second.operation.pending());
  EXPECT_TRUE(third.operation.pending());
}

TEST(Mailbox, AWrongSizeFailsTheReceiveAndLetsTheMessageGoBy) {
  Mailbox box(1);
  Receive receive(1, 4);
  box.receive(receive.operation);
  arrive(box, 1, 6, "abc");
  EXPECT_EQ(receive.operation.state, Operation::State::failed);
  arrive(box, 1, 6, "def");
  EXPECT_FALSE(box.has_arrivals());
  EXPECT_EQ(receive.text, "....");
}

TEST(Mailbox, AForgottenReceiveIsNotWrittenTo) {
  Mailbox box(1);
  {
    Receive receive(1, 4);
    box.receive(receive.operation);
    arrive(box, 1, 4, "ab");
    box.forget(receive.operation);
  }
  arrive(box, 1, 4, "cd");
  EXPECT_FALSE(box.has_arrivals());
  Receive next(1, 2);
  box.receive(next.operation);
  arrive(box, 1, 2, "ok");
  EXPECT_EQ(next.text, "ok");
}

TEST(Mailbox, TooLittleMemoryIsAnErrorThatNamesTheMessage) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer ends the process when memory runs out";
#endif
  Mailbox box(1);
  try {
    box.message_for(7, std::size_t{1} << 60, {});
    FAIL() << "an exabyte was to be had";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("from rank 1, tag 7, that nobody has asked for yet"), std::string::npos)
        << error.what();
  }
}

TEST(Mailbox, ManyMessagesThatNobodyHasAskedForStayCheap) {
  Mailbox box(1);
  constexpr int kMessages = 200'000;  // minutes, if each cost a walk over the others
  for (int i = 0; i < kMessages; ++i) arrive(box, static_cast<Tag>(i % 3), 1, "x");
  for (int i = 0; i < kMessages; ++i) {
    Receive receive(static_cast<Tag>(i % 3), 1);
    box.receive(receive.operation);
    ASSERT_FALSE(receive.operation.pending());
  }
  EXPECT_FALSE(box.has_arrivals());
}

TEST(Mailbox, AnOfferIsHandedToItsReceive) {
  Mailbox box(1);
  Incoming& message = box.offered(1, 4, {}, {1234, 3});
  EXPECT_FALSE(message.complete());
  Receive other(2, 4);
  EXPECT_EQ(box.receive(other.operation), nullptr);
  Receive receive(1, 4);
  Incoming* found = box.receive(receive.operation);
  ASSERT_EQ(found, &message);
  EXPECT_EQ(found->offer->slot, 3);
  EXPECT_EQ(found->destination(), receive.operation.data);
}

}  // namespace
}  // namespace lockstep::transport
