// A doubly linked list whose links live in the elements: O(1) insertion and removal, no allocation.
// An element is in at most one list per link member and must leave it before it dies.
#pragma once

#include <cstddef>

#include "farverbs/base/check.h"

namespace farverbs {

struct ListLink {
  ListLink* previous = nullptr;
  ListLink* next = nullptr;
  bool linked() const { return next != nullptr; }
};

template <typename T, ListLink T::*kLink>
class IntrusiveList {
 public:
  IntrusiveList() { head_.previous = head_.next = &head_; }
  IntrusiveList(const IntrusiveList&) = delete;
  IntrusiveList& operator=(const IntrusiveList&) = delete;
  ~IntrusiveList() {
    while (!empty()) pop_front();
  }

  bool empty() const { return head_.next == &head_; }
  T* front() { return empty() ? nullptr : owner(head_.next); }
  void push_back(T& element) { insert(*head_.previous, element); }
  void push_front(T& element) { insert(head_, element); }
  T* pop_front() {
    T* element = front();
    if (element != nullptr) remove(*element);
    return element;
  }
  static void remove(T& element) {
    ListLink& link = element.*kLink;
    FV_CHECK(link.linked());
    link.previous->next = link.next;
    link.next->previous = link.previous;
    link.previous = link.next = nullptr;
  }
  static void remove_if_linked(T& element) {
    if ((element.*kLink).linked()) remove(element);
  }

 private:
  static void insert(ListLink& after, T& element) {
    ListLink& link = element.*kLink;
    FV_CHECK(!link.linked());
    link.previous = &after;
    link.next = after.next;
    after.next->previous = &link;
    after.next = &link;
  }
  static T* owner(ListLink* link) {
    // The distance from an element to its link is the same for all elements.
    alignas(T) static const std::byte storage[sizeof(T)] = {};
    const T* fake = reinterpret_cast<const T*>(storage);
    const auto offset = reinterpret_cast<const std::byte*>(&(fake->*kLink)) - storage;
    return reinterpret_cast<T*>(reinterpret_cast<std::byte*>(link) - offset);
  }
  ListLink head_;
};

}  // namespace farverbs
