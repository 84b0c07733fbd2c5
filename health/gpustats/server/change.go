package server

import (
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	gpb "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

// jitter is how far two statements about the same moment may be apart, since clocks were read at different times for them.
const jitter = time.Millisecond

// differ reports whether b says something that a watcher who knows a has to be told: a number that has changed by more than the
// share minChange of the larger one, or anything else that is another. What is relative to the time of the report differs if it
// is about another moment. Models are compared in their order.
func differ(a, b *gpb.NodeReport, minChange float64) bool {
	c := comparison{minChange: minChange, apart: b.GetSampledAt().AsTime().Sub(a.GetSampledAt().AsTime())}
	return !same(a.State, b.State) ||
		number(c, a.InFlight, b.InFlight) || number(c, a.Waiting, b.Waiting) ||
		number(c, a.Connections, b.Connections) || number(c, a.Concurrency, b.Concurrency) ||
		number(c, a.Utilization, b.Utilization) || c.duration(a.QueueDelay, b.QueueDelay) ||
		!slices.EqualFunc(a.Gpus, b.Gpus, func(a, b *gpb.GPU) bool { return !c.gpu(a, b) }) ||
		!slices.EqualFunc(a.Models, b.Models, func(a, b *gpb.Model) bool { return !c.model(a, b) }) ||
		!same(a.ModelsComplete, b.ModelsComplete) || !same(a.LoadsOnDemand, b.LoadsOnDemand) ||
		c.until(a.LaneFreeIn, b.LaneFreeIn) || c.duration(a.LoadTime, b.LoadTime) || c.victim(a.Victim, b.Victim)
}

// comparison compares parts of two reports. Its methods report whether they differ.
type comparison struct {
	minChange float64
	apart     time.Duration // from the first report's time to the second's
}

func (c comparison) gpu(a, b *gpb.GPU) bool {
	if a == nil || b == nil {
		return a != b
	}
	return !same(a.Uuid, b.Uuid) || !same(a.Healthy, b.Healthy) || number(c, a.MemoryUsedBytes, b.MemoryUsedBytes) ||
		number(c, a.MemoryTotalBytes, b.MemoryTotalBytes) || number(c, a.MemoryFreeBytes, b.MemoryFreeBytes) ||
		number(c, a.Utilization, b.Utilization) || number(c, a.TemperatureCelsius, b.TemperatureCelsius)
}

func (c comparison) model(a, b *gpb.Model) bool {
	if a == nil || b == nil {
		return a != b
	}
	return !same(a.Name, b.Name) || !same(a.Version, b.Version) || !same(a.State, b.State) ||
		number(c, a.ResidentBytes, b.ResidentBytes) || number(c, a.Pending, b.Pending) || number(c, a.Running, b.Running) ||
		c.duration(a.ServiceTime, b.ServiceTime) || c.until(a.LoadEta, b.LoadEta) ||
		c.kvCache(a.KvCache, b.KvCache) || c.lora(a.Lora, b.Lora)
}

func (c comparison) victim(a, b *gpb.Victim) bool {
	if a == nil || b == nil {
		return a != b
	}
	return !same(a.Kind, b.Kind) || !same(a.Model, b.Model) || c.since(a.LastUsedAge, b.LastUsedAge)
}

func (c comparison) kvCache(a, b *gpb.KVCache) bool {
	if a == nil || b == nil {
		return a != b
	}
	return number(c, a.Utilization, b.Utilization) || number(c, a.BlockSizeTokens, b.BlockSizeTokens) ||
		number(c, a.BlocksTotal, b.BlocksTotal) || number(c, a.MaxTokenCapacity, b.MaxTokenCapacity) ||
		number(c, a.PrefixHitRatio, b.PrefixHitRatio)
}

func (c comparison) lora(a, b *gpb.LoRA) bool {
	if a == nil || b == nil {
		return a != b
	}
	return !slices.Equal(a.Active, b.Active) || !slices.Equal(a.Waiting, b.Waiting) || number(c, a.MaxAdapters, b.MaxAdapters)
}

func (c comparison) duration(a, b *durationpb.Duration) bool {
	if a == nil || b == nil {
		return a != b
	}
	return c.beyond(float64(a.AsDuration()), float64(b.AsDuration()), 0)
}

// until compares times that are still to pass.
func (c comparison) until(a, b *durationpb.Duration) bool {
	if a == nil || b == nil {
		return a != b
	}
	return c.beyond(float64(max(0, a.AsDuration()-c.apart)), float64(b.AsDuration()), jitter)
}

// since compares times that have passed.
func (c comparison) since(a, b *durationpb.Duration) bool {
	if a == nil || b == nil {
		return a != b
	}
	return c.beyond(float64(a.AsDuration())+float64(c.apart), float64(b.AsDuration()), jitter)
}

// beyond reports whether two numbers are further apart than the least change, and than least.
func (c comparison) beyond(a, b float64, least time.Duration) bool {
	return math.Abs(a-b) > max(c.minChange*max(math.Abs(a), math.Abs(b)), float64(least))
}

func number[T int64 | float64](c comparison, a, b *T) bool {
	if a == nil || b == nil {
		return a != b
	}
	return c.beyond(float64(*a), float64(*b), 0)
}

func same[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
