#include "farverbs/model/qp_state.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

namespace farverbs::model {
namespace {

std::string attributes(uint32_t mask) {
  std::string text;
  for (uint32_t bit = 1; bit <= kAttrDestinationQpn; bit <<= 1) {
    if ((mask & bit) != 0) text += std::string(text.empty() ? "" : " ") + attribute_name(bit);
  }
  return text.empty() ? "-" : text;
}

// Every (type, from, to), allowed or not.
std::string snapshot() {
  std::string text;
  for (const QpType type : {QpType::kRc, QpType::kUc, QpType::kUd}) {
    for (unsigned from = 0; from < kQpStates; ++from) {
      for (unsigned to = 0; to < kQpStates; ++to) {
        const auto a = static_cast<QpState>(from);
        const auto b = static_cast<QpState>(to);
        text += std::string(to_string(type)) + " " + to_string(a) + " -> " + to_string(b) + ": ";
        if (const QpTransition* t = find_transition(type, a, b); t == nullptr) {
          text += "refused\n";
        } else {
          text += "required " + attributes(t->required) + "; optional " + attributes(t->optional) +
                  "\n";
        }
      }
    }
  }
  return text;
}

TEST(QpState, TheTransitionsAreThoseOfTheSnapshot) {
  std::ifstream file(FARVERBS_SOURCE_DIR "/src/farverbs/model/qp_transitions.snapshot.txt");
  const std::string expected{std::istreambuf_iterator<char>(file), {}};
  if (snapshot() == expected) return;
  const std::string path = testing::TempDir() + "qp_transitions.snapshot.txt";
  std::ofstream(path) << snapshot();
  FAIL() << "The table differs from src/farverbs/model/qp_transitions.snapshot.txt; if it was "
            "changed on purpose, commit "
         << path << " in its place.";
}

std::string refusal(QpType type, QpState from, const QpAttributes& attributes, uint32_t mask) {
  const auto result = check_modify(type, from, attributes, mask, QpLimits{});
  if (result.ok()) return "";
  EXPECT_EQ(result.error().code, EINVAL);
  return result.error().message;
}

constexpr uint32_t kToInit = kAttrState | kAttrPkeyIndex | kAttrPort | kAttrAccessFlags;
constexpr uint32_t kToRtr = kAttrState | kAttrAddressVector | kAttrPathMtu | kAttrDestinationQpn |
                            kAttrRqPsn | kAttrMaxDestRdAtomic | kAttrMinRnrTimer;
constexpr uint32_t kToRts =
    kAttrState | kAttrTimeout | kAttrRetryCount | kAttrRnrRetry | kAttrSqPsn | kAttrMaxRdAtomic;

QpAttributes to(QpState state) {
  QpAttributes a;
  a.state = state;
  return a;
}

TEST(QpState, AnRcQpComesUpWithItsRequiredAttributes) {
  EXPECT_EQ(refusal(QpType::kRc, QpState::kReset, to(QpState::kInit), kToInit), "");
  EXPECT_EQ(refusal(QpType::kRc, QpState::kInit, to(QpState::kRtr), kToRtr), "");
  EXPECT_EQ(refusal(QpType::kRc, QpState::kRtr, to(QpState::kRts), kToRts), "");
  EXPECT_EQ(refusal(QpType::kRc, QpState::kRts, to(QpState::kErr), kAttrState), "");
  EXPECT_EQ(refusal(QpType::kRc, QpState::kErr, to(QpState::kReset), kAttrState), "");
}

TEST(QpState, EachRequiredAttributeIsMissedAndEachForeignOneRefused) {
  for (const QpTransition& t : qp_transitions()) {
    const uint32_t full = kAttrState | t.required;
    ASSERT_EQ(refusal(t.type, t.from, to(t.to), full), "") << to_string(t.from) << to_string(t.to);
    for (uint32_t bit = kAttrEnableSqdNotify; bit <= kAttrDestinationQpn; bit <<= 1) {
      if ((t.required & bit) != 0) {
        EXPECT_EQ(refusal(t.type, t.from, to(t.to), full & ~bit),
                  std::string(to_string(t.from)) + " to " + to_string(t.to) +
                      " needs the attribute " + attribute_name(bit));
      } else if ((t.optional & bit) == 0) {
        EXPECT_EQ(refusal(t.type, t.from, to(t.to), full | bit),
                  std::string(to_string(t.from)) + " to " + to_string(t.to) +
                      " does not take the attribute " + attribute_name(bit));
      }
    }
  }
}

TEST(QpState, MessagesNameTheTransitionAndTheAttributes) {
  EXPECT_EQ(refusal(QpType::kRc, QpState::kReset, to(QpState::kInit), kToInit & ~kAttrPort),
            "RESET to INIT needs the attribute port_number");
  EXPECT_EQ(refusal(QpType::kUd, QpState::kReset, to(QpState::kInit), kAttrState | kAttrPort),
            "RESET to INIT needs the attributes pkey_index, qkey");
  EXPECT_EQ(refusal(QpType::kRc, QpState::kReset, to(QpState::kRts), kToRts),
            "RESET to RTS is not a transition of a RC QP");
  EXPECT_EQ(refusal(QpType::kRc, QpState::kSqe, to(QpState::kRts), kAttrState),
            "SQE to RTS is not a transition of a RC QP");
  QpAttributes a = to(QpState::kRts);
  a.current_state = QpState::kSqe;
  EXPECT_EQ(refusal(QpType::kUd, QpState::kRts, a, kAttrState | kAttrCurrentState),
            "current_state says SQE, but the QP is in RTS");
  EXPECT_EQ(refusal(QpType::kRc, QpState::kRts, a, kAttrState | kAttrAlternatePath),
            "alternate_path not supported: this device has no automatic path migration");
  EXPECT_EQ(refusal(QpType::kRc, QpState::kRts, a, 1u << 21),
            "attribute mask has unknown bits, got 2097152");
}

TEST(QpState, WithoutAStateTheQpStaysWhereItIs) {
  EXPECT_EQ(refusal(QpType::kRc, QpState::kRts, {}, kAttrMinRnrTimer), "");
  EXPECT_EQ(refusal(QpType::kRc, QpState::kRtr, {}, kAttrMinRnrTimer),
            "RTR to RTR is not a transition of a RC QP");
}

TEST(QpState, ValuesOutOfRangeAreNamed) {
  QpAttributes a = to(QpState::kRts);
  a.timeout = 40;
  EXPECT_EQ(refusal(QpType::kRc, QpState::kRtr, a, kToRts), "timeout must be 0 to 31, got 40");
  a.timeout = 31;
  a.retry_count = 8;
  EXPECT_EQ(refusal(QpType::kRc, QpState::kRtr, a, kToRts), "retry_count must be 0 to 7, got 8");
  a.retry_count = 7;
  a.rnr_retry = 8;
  EXPECT_EQ(refusal(QpType::kRc, QpState::kRtr, a, kToRts), "rnr_retry must be 0 to 7, got 8");
  a.rnr_retry = 7;
  a.max_rd_atomic = 129;
  EXPECT_EQ(refusal(QpType::kRc, QpState::kRtr, a, kToRts),
            "max_rd_atomic must be 0 to 128, got 129");

  QpAttributes b = to(QpState::kRtr);
  b.path_mtu = static_cast<PathMtu>(6);
  EXPECT_EQ(refusal(QpType::kRc, QpState::kInit, b, kToRtr),
            "path_mtu must be code 1 (256 bytes) to 5 (4096 bytes), got code 6");
  b.path_mtu = PathMtu::k1024;
  b.min_rnr_timer = 32;
  EXPECT_EQ(refusal(QpType::kRc, QpState::kInit, b, kToRtr),
            "min_rnr_timer must be 0 to 31, got 32");
  b.min_rnr_timer = 0;
  b.max_dest_rd_atomic = 200;
  EXPECT_EQ(refusal(QpType::kRc, QpState::kInit, b, kToRtr),
            "max_dest_rd_atomic must be 0 to 128, got 200");
  b.max_dest_rd_atomic = 0;
  b.address_vector.source_gid_index = 1;
  EXPECT_EQ(refusal(QpType::kRc, QpState::kInit, b, kToRtr),
            "address_vector.source_gid_index must be 0 to 0, got 1");
  b.address_vector.source_gid_index = 0;
  b.address_vector.flow_label = 1 << 20;
  EXPECT_EQ(refusal(QpType::kRc, QpState::kInit, b, kToRtr),
            "address_vector.flow_label must be 0 to 1048575, got 1048576");
  b.address_vector.flow_label = 0;
  b.address_vector.service_level = 16;
  EXPECT_EQ(refusal(QpType::kRc, QpState::kInit, b, kToRtr),
            "address_vector.service_level must be 0 to 15, got 16");
  b.address_vector.service_level = 0;
  b.address_vector.port_number = 2;
  EXPECT_EQ(refusal(QpType::kRc, QpState::kInit, b, kToRtr),
            "address_vector.port_number must be 1 to 1, got 2");

  QpAttributes c = to(QpState::kInit);
  c.port_number = 0;
  EXPECT_EQ(refusal(QpType::kRc, QpState::kReset, c, kToInit), "port_number must be 1 to 1, got 0");
  c.port_number = 1;
  c.pkey_index = 1;
  EXPECT_EQ(refusal(QpType::kRc, QpState::kReset, c, kToInit), "pkey_index must be 0 to 0, got 1");
  c.pkey_index = 0;
  c.access_flags = 1 << 9;
  EXPECT_EQ(refusal(QpType::kRc, QpState::kReset, c, kToInit),
            "access_flags has unknown bits, got 512");
}

TEST(QpState, ApplyCopiesWhatTheMaskNames) {
  QpAttributes now;
  QpAttributes asked;
  asked.timeout = 9;
  asked.sq_psn = Psn(77);
  asked.retry_count = 1;
  asked.state = QpState::kRts;
  apply_attributes(now, asked, kAttrState | kAttrTimeout | kAttrSqPsn);
  EXPECT_EQ(now.timeout, 9);
  EXPECT_EQ(now.sq_psn, Psn(77));
  EXPECT_EQ(now.retry_count, 7);
  EXPECT_EQ(now.state, QpState::kReset) << "the state is the machine's to change";
}

}  // namespace
}  // namespace farverbs::model
