package fleet

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

func TestSlowServer(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1}), func(t *testing.T, f *Fleet) {
		s, c := f.Servers[0], client(t, f, 0)
		s.Slow(10)
		begin := time.Now()
		_, err := c.Infer(t.Context(), NewRequest("m", time.Second))
		require.NoError(t, err)
		assert.Equal(t, time.Minute, time.Since(begin), "load and work")
		s.Slow(1)
		begin = time.Now()
		_, err = c.Infer(t.Context(), NewRequest("m", time.Second))
		require.NoError(t, err)
		assert.Equal(t, time.Second, time.Since(begin))
		for _, bad := range []float64{0, -1} {
			assert.Panics(t, func() { s.Slow(bad) })
		}
	})
}

func TestFailingServer(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1, Seed: 1}), func(t *testing.T, f *Fleet) {
		s, c := f.Servers[0], client(t, f, 0)
		s.Preload("m", "n")
		s.Fail(codes.ResourceExhausted, "no", 1)
		begin := time.Now()
		_, err := c.Infer(t.Context(), NewRequest("m", time.Second))
		requireStatus(t, err, codes.ResourceExhausted, "no")
		assert.Zero(t, time.Since(begin), "fails at once")

		s.FailModel("m", codes.Internal, "Stub process 'm_0_0' is not healthy.", 1)
		_, err = c.Infer(t.Context(), NewRequest("m", 0))
		requireStatus(t, err, codes.Internal, "Stub process 'm_0_0' is not healthy.")
		_, err = c.Infer(t.Context(), NewRequest("n", 0))
		requireStatus(t, err, codes.ResourceExhausted, "no")

		s.Fail(codes.OK, "", 1)
		_, err = c.Infer(t.Context(), NewRequest("n", 0))
		require.NoError(t, err)
		_, err = c.Infer(t.Context(), NewRequest("m", 0))
		require.Error(t, err)
		ready, err := c.ModelReady(t.Context(), "m")
		require.NoError(t, err)
		assert.True(t, ready, "readiness does not know")

		s.FailModel("m", codes.Internal, "some", 0.2)
		failed := 0
		for range 500 {
			if _, err := c.Infer(t.Context(), NewRequest("m", 0)); err != nil {
				failed++
			}
		}
		assert.InDelta(t, 100, failed, 40)
		st := s.Stats()
		assert.EqualValues(t, 505, st.Calls)
		assert.EqualValues(t, 2, st.Errors[codes.ResourceExhausted])
		assert.EqualValues(t, 2+failed, st.Errors[codes.Internal])
		stats, err := c.Statistics(t.Context(), "m")
		require.NoError(t, err)
		assert.EqualValues(t, 3+failed, stats[0].GetInferenceStats().GetFail().GetCount())
	})
}

func TestHangingServer(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1}), func(t *testing.T, f *Fleet) {
		s, c := f.Servers[0], client(t, f, 0)
		s.Hang(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begin := time.Now()
		_, err := c.Infer(ctx, NewRequest("m", 0))
		assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
		assert.Equal(t, time.Hour, time.Since(begin))
		ready, err := c.ServerReady(t.Context())
		require.NoError(t, err)
		assert.True(t, ready)
		s.Hang(false)
		_, err = c.Infer(t.Context(), NewRequest("m", 0))
		require.NoError(t, err)
	})
}

func TestDrainingServer(t *testing.T) {
	for _, explicit := range []bool{false, true} {
		inBubble(t, exact(Config{Servers: 1, Explicit: explicit, Scale: 0.5}), func(t *testing.T, f *Fleet) {
			s, c := f.Servers[0], client(t, f, 0)
			s.Preload("m")
			inFlight := make(chan error, 1)
			go func() {
				_, err := c.Infer(context.Background(), NewRequest("m", time.Second))
				inFlight <- err
			}()
			synctest.Wait()
			s.Drain()
			_, err := c.Infer(t.Context(), NewRequest("m", 0))
			requireStatus(t, err, codes.Unavailable,
				"Server is stopping, scheduler for model has stopped accepting new inference requests")
			time.Sleep(25*time.Millisecond - 1) // virtual
			_, err = c.Infer(t.Context(), NewRequest("m", 0))
			require.Equal(t, codes.Unavailable, status.Code(err))
			time.Sleep(time.Nanosecond)
			s.Drain() // does not begin anew
			begin := time.Now()
			_, err = c.Infer(t.Context(), NewRequest("m", 0))
			requireStatus(t, err, codes.NotFound, "Request for unknown model: 'm' has no available versions")
			assert.Zero(t, time.Since(begin))

			_, err = c.ServerReady(t.Context())
			requireStatus(t, err, codes.Unavailable, "Server exiting")
			_, err = c.ModelReady(t.Context(), "m")
			requireStatus(t, err, codes.Unavailable, "Server not ready")
			_, err = c.Statistics(t.Context(), "")
			requireStatus(t, err, codes.Unavailable, "Server not ready")
			require.NoError(t, <-inFlight)

			s.Kill()
			require.NoError(t, s.Restart())
			s.Preload("m")
			_, err = client(t, f, 0).Infer(t.Context(), NewRequest("m", 0))
			require.NoError(t, err)
		})
	}
}

func TestKilledServer(t *testing.T) {
	for _, inMemory := range []bool{true, false} {
		f := start(t, exact(Config{Servers: 1, InMemory: inMemory}))
		s := f.Servers[0]
		s.Preload("m")
		cc := channel(t, f, 0)
		c := client(t, f, 0)
		inFlight := make(chan error, 1)
		go func() {
			_, err := c.Infer(testContext(t), NewRequest("m", time.Hour))
			inFlight <- err
		}()
		require.Eventually(t, func() bool { return s.Stats().Running == 1 }, 10*time.Second, time.Millisecond)

		addr := s.Addr()
		s.Kill()
		s.Kill() // there is nothing left to kill
		err := <-inFlight
		assert.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
		st := s.Stats()
		assert.EqualValues(t, 1, st.Calls)
		assert.EqualValues(t, 1, st.Errors[codes.Canceled])
		assert.Empty(t, st.Resident)
		assert.Zero(t, st.Running)
		_, err = s.Dial(testContext(t))
		assert.ErrorContains(t, err, "connection refused")

		require.NoError(t, s.Restart())
		assert.Equal(t, addr, s.Addr())
		cc.Connect()
		for state := cc.GetState(); state != connectivity.Ready; state = cc.GetState() {
			require.True(t, cc.WaitForStateChange(testContext(t), state))
		}
		require.NoError(t, s.Restart(), "of a server that is up")
		assert.EqualValues(t, 1, s.Stats().Calls, "counters go on")
		var kinds []EventKind
		for _, e := range s.Events() {
			kinds = append(kinds, e.Kind)
		}
		assert.Equal(t, []EventKind{Loaded, Evicted}, kinds)
		assert.Zero(t, s.Stats().Evictions, "a stop is none")
	}
}

func TestGracefulStop(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1}), func(t *testing.T, f *Fleet) {
		s, c := f.Servers[0], client(t, f, 0)
		s.Preload("m")
		inFlight := make(chan error, 1)
		begin := time.Now()
		go func() {
			_, err := c.Infer(context.Background(), NewRequest("m", time.Second))
			inFlight <- err
		}()
		synctest.Wait()
		s.GracefulStop()
		require.NoError(t, <-inFlight)
		assert.Equal(t, time.Second, time.Since(begin))
		_, err := c.Infer(t.Context(), NewRequest("m", 0))
		assert.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
		assert.EqualValues(t, 1, s.Stats().OK)
	})
}

func TestKillEndsAGracefulStop(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1}), func(t *testing.T, f *Fleet) {
		s, c := f.Servers[0], client(t, f, 0)
		s.Hang(true)
		inFlight := make(chan error, 1)
		go func() {
			_, err := c.Infer(context.Background(), NewRequest("m", 0))
			inFlight <- err
		}()
		synctest.Wait()
		stopped := make(chan struct{})
		go func() {
			s.GracefulStop()
			close(stopped)
		}()
		synctest.Wait()
		s.Kill()
		assert.Equal(t, codes.Unavailable, status.Code(<-inFlight))
		<-stopped
		require.NoError(t, s.Restart())
	})
}

func TestEvict(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1}), func(t *testing.T, f *Fleet) {
		s, c := f.Servers[0], client(t, f, 0)
		assert.Equal(t, 4, s.Preload("a", "b", "c", "d", "e", ""))
		assert.True(t, s.Evict("a"))
		assert.False(t, s.Evict("a"))
		assert.False(t, s.Evict("never seen"))
		assert.Equal(t, []string{"b", "c", "d"}, s.Stats().Resident)
		resp, err := c.Infer(t.Context(), NewRequest("a", 0))
		require.NoError(t, err)
		assert.True(t, resp.GetParameters()[ColdParameter].GetBoolParam())
	})
}
