package health

import (
	"math"
	"math/rand/v2"
	"time"
)

const second = int64(time.Second)

// newRand returns a source of numbers that are the same each time.
func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// lognormal returns a number of a lognormal distribution with a mean of 1 and the coefficient of variation cv.
func lognormal(r *rand.Rand, cv float64) float64 {
	v := math.Log1p(cv * cv)
	return math.Exp(r.NormFloat64()*math.Sqrt(v) - v/2)
}

// A server is an endpoint with the calls on it.
type server struct {
	c     Config
	v     Vitals
	s     Score
	now   int64
	rand  *rand.Rand
	load  LoadView
	flips []int64 // when Healthy changed
}

// newServer returns a server with free memory and no connections that reports both.
func newServer() *server {
	s := &server{c: DefaultConfig(), now: second, rand: newRand(1)}
	s.load = LoadView{MemoryFree: 1}
	return s
}

// serve lets some seconds pass, with rate calls a second that take factor times as long as usual, and updates the score every
// 250 ms.
func (s *server) serve(seconds float64, rate int, factor, cv float64) {
	s.run(seconds, rate, func() { s.v.Success(factor * lognormal(s.rand, cv)) })
}

// fail lets some seconds pass in which rate calls a second fail.
func (s *server) fail(seconds float64, rate int) { s.run(seconds, rate, s.v.Failure) }

func (s *server) run(seconds float64, rate int, call func()) {
	for range int(4 * seconds) {
		for range rate / 4 {
			call()
		}
		s.now += second / 4
		s.update()
	}
}

func (s *server) update() {
	if s.load.MemoryFreeAt >= 0 {
		s.load.MemoryFreeAt = s.now
	}
	if s.load.ConnectionsAt >= 0 {
		s.load.ConnectionsAt = s.now
	}
	if s.s.Update(s.now, &s.c, &s.v, s.load) {
		s.flips = append(s.flips, s.now)
	}
}
