// For the main thread of a test: runs that must not fail, with the failure in the log.
#pragma once

#include <boost/test/unit_test.hpp>
#include <exception>
#include <string>

/// The statement must not throw; if it does, the test case ends with the text of the exception.
#define HPCOMM_TEST_RUNS(...)                                  \
  do {                                                         \
    std::string failure_text;                                  \
    try {                                                      \
      __VA_ARGS__;                                             \
    } catch (const std::exception& failure) {                  \
      failure_text = failure.what();                           \
    }                                                          \
    BOOST_REQUIRE_MESSAGE(failure_text.empty(), failure_text); \
  } while (0)
