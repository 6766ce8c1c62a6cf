// The messages of one step of an algorithm. Whatever is pending when a step is left by an exception
// is cancelled, so that no transport touches memory that is gone.
#pragma once

#include <vector>

#include "collectives/request.hpp"
#include "transport/endpoint.hpp"
#include "transport/tag.hpp"

namespace hpcomm {

class Flight {
 public:
  /// Both must outlive it.
  Flight(Endpoint& endpoint, const CollectiveRequest& request, Tag tag = tag::kCollective)
      : endpoint_(endpoint), request_(request), tag_(tag) {}
  ~Flight() {
    for (Endpoint::Handle& handle : handles_) endpoint_.cancel(handle);
  }
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;

  /// Nothing is sent where there are no bytes: both sides know the lengths.
  void send(const std::byte* data, std::size_t nbytes, int peer) {
    if (nbytes > 0) handles_.push_back(endpoint_.isend({data, nbytes}, peer, tag_));
  }
  void recv(std::byte* data, std::size_t nbytes, int peer) {
    if (nbytes > 0) handles_.push_back(endpoint_.irecv({data, nbytes}, peer, tag_));
  }
  /// Messages without content.
  void send_token(int peer) { handles_.push_back(endpoint_.isend({}, peer, tag_)); }
  void recv_token(int peer) { handles_.push_back(endpoint_.irecv({}, peer, tag_)); }

  /// Until all of them are complete.
  void wait() {
    bool complete = true;
    for (Endpoint::Handle& handle : handles_) complete = endpoint_.test(handle) && complete;
    if (!complete)
      endpoint_.wait_all(handles_, request_.deadline, describe(request_, endpoint_.size()));
    handles_.clear();
  }

 private:
  Endpoint& endpoint_;
  const CollectiveRequest& request_;
  const Tag tag_;
  std::vector<Endpoint::Handle> handles_;
};

}  // namespace hpcomm
