package balancer

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"container/list"

	"github.com/stretchr/testify/require"

	"github.com/mlbalancer/mlbalancer/picker"
)

func newParking() *parking {
	return &parking{byKey: map[parkKey]*list.Element{}, order: list.New()}
}

func membershipOf(ids ...string) *membership {
	ms := &membership{byID: map[string]*member{}}
	for i, id := range ids {
		m := &member{endpoint: picker.NewEndpoint(id), index: i, addrs: "addr-" + id}
		ms.byID[id] = m
		ms.slots = append(ms.slots, m)
	}
	return ms
}

func TestParkingReturnsAnEndpointOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, channel, ms := newParking(), new(int), membershipOf("a", "b")
		p.park(channel, ms)
		require.Nil(t, p.take(new(int), "a", "addr-a"), "another channel")
		require.Nil(t, p.take(channel, "c", "addr-c"), "another endpoint")
		require.Same(t, ms.byID["a"].endpoint, p.take(channel, "a", "addr-a"))
		require.Nil(t, p.take(channel, "a", "addr-a"), "taken")
		require.Nil(t, p.take(channel, "b", "addr-new"), "a new address starts anew")
	})
}

func TestParkingForgetsAfterTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, channel := newParking(), new(int)
		p.park(channel, membershipOf("a"))
		time.Sleep(parkFor / 2)
		p.park(channel, membershipOf("b"))
		time.Sleep(parkFor / 2)
		synctest.Wait()
		require.Nil(t, p.take(channel, "a", "addr-a"))
		p.mu.Lock()
		require.Equal(t, 1, p.order.Len())
		p.mu.Unlock()
		time.Sleep(parkFor / 2)
		synctest.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		require.Zero(t, p.order.Len())
		require.Empty(t, p.byKey)
		require.Nil(t, p.timer)
	})
}

func TestParkingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParking()
		for i := range 3 {
			ids := make([]string, maxParked/2)
			for j := range ids {
				ids[j] = fmt.Sprint(i, "-", j)
			}
			p.park(new(int), membershipOf(ids...))
		}
		require.Equal(t, maxParked, p.order.Len())
		require.Len(t, p.byKey, maxParked)
	})
}

func TestParkingWithoutAChannelKeepsNothing(t *testing.T) {
	p := newParking()
	p.park(nil, membershipOf("a"))
	require.Nil(t, p.take(nil, "a", "addr-a"))
	require.Zero(t, p.order.Len())
}
