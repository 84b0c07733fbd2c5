package interop

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mlbalancer/mlbalancer/integration/interop/servers"
	"github.com/mlbalancer/mlbalancer/integration/rig"
)

// nomads are models that are called, and move from one server to the other.
var nomads = []string{"nomad1", "nomad2"}

const visitor = "visitor" // a model that nobody calls

// Tritons in explicit mode have the models that they were told to load, here none of them where the ring would have it. While
// models are loaded and unloaded, which makes the servers say that they are not ready, each call goes where its model is. Models
// that move are called where they went as soon as they are gone from where they were, though that is heard of only later.
func TestTritonAffinity(t *testing.T) {
	for _, p := range []policy{modelAware, withoutRetries, roundRobin} {
		t.Run(p.name, func(t *testing.T) { testAffinity(t, startFleet(t, servers.Triton, p, parted("a"), parted("b"))) })
	}
}

// parted returns the models of a server that starts with those whose home is the other one.
func parted(server string) []servers.Model {
	theirs := modelsOfA
	if server == "a" {
		theirs = slices.Concat(nomads, modelsOfB)
	}
	models := []servers.Model{{Name: visitor, Loads: time.Second, Later: true}}
	for _, m := range append(modelsOfAll(), nomads...) {
		models = append(models, servers.Model{Name: m, Takes: takes, Later: !slices.Contains(theirs, m)})
	}
	return models
}

func testAffinity(t *testing.T, f *fleet) {
	if f.policy.name == withoutRetries.name { // the first calls would be those that ask where their models are
		f.conn.Connect()
		for _, m := range modelsOfB {
			f.hears("a", m, "ready")
		}
		for _, m := range modelsOfA {
			f.hears("b", m, "ready")
		}
		for _, server := range []string{"a", "b"} { // a model is seen to be ready a moment before all is that was reported with it
			ready := func() bool { return f.endpoint(server).Health.Sources["oip"] == "ready" }
			rig.Eventually(t, ready, heardLimit, "%s is not ready", server)
		}
	}
	type stay struct {
		at         string
		begun, end time.Time
	}
	var stays []stay
	calls := f.during(append(modelsOfAll(), nomads...), func() {
		from, to := f.a, f.b
		for range 3 {
			pass(2 * time.Second)
			f.must(to.Load(f.within(), visitor))
			for _, m := range nomads {
				f.must(to.Load(f.within(), m))
			}
			for _, m := range nomads {
				f.must(from.Unload(f.within(), m))
			}
			s := stay{at: to.Name, begun: time.Now()}
			f.must(from.Load(f.within(), visitor))
			f.must(to.Unload(f.within(), visitor))
			f.must(from.Unload(f.within(), visitor))
			pass(moveLimit)
			s.end = time.Now()
			stays = append(stays, s)
			from, to = to, from
		}
	})
	f.row("each server with models of its own, two move", calls.all())
	if f.policy.name == roundRobin.name {
		assert.Greater(t, len(calls.all().Failed()), len(calls.all())/3, "the servers have the same models")
		return
	}
	for server, models := range map[string][]string{"a": modelsOfB, "b": modelsOfA} {
		own := calls.of(models...)
		assert.Empty(t, own.Failed(), own.String())
		assert.Len(t, own, own.By()[server], "%v are at %s", models, server)
	}
	for _, s := range stays {
		later := calls.of(nomads...).Between(s.begun.Add(moveLimit), s.end)
		assert.Empty(t, later.Failed(), later.String())
		assert.Len(t, later, later.By()[s.at], "they are at %s", s.at)
	}
	if f.policy.name != withoutRetries.name {
		assert.Empty(t, calls.all().Failed(), calls.all().String())
	}
}
