// Boost.Test from headers alone; every *_test.cpp puts its cases into the suite of its folder.
#define BOOST_TEST_MODULE hpcomm
#include <boost/test/included/unit_test.hpp>
