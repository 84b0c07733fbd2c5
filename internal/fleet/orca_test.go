package fleet

import (
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// decode reads an xds.data.orca.v3.OrcaLoadReport. Its two plain numbers are called rps and utilization.
func decode(t *testing.T, report string) map[string]float64 {
	t.Helper()
	fields := func(b []byte, each func(n protowire.Number, value []byte, number float64)) {
		for len(b) > 0 {
			num, typ, n := protowire.ConsumeTag(b)
			require.Positive(t, n)
			b = b[n:]
			switch typ {
			case protowire.BytesType:
				v, n := protowire.ConsumeBytes(b)
				require.Positive(t, n)
				each(num, v, 0)
				b = b[n:]
			case protowire.Fixed64Type:
				v, n := protowire.ConsumeFixed64(b)
				require.Positive(t, n)
				each(num, nil, math.Float64frombits(v))
				b = b[n:]
			default:
				require.Fail(t, "unexpected wire type", "%v of field %v", typ, num)
			}
		}
	}
	got := make(map[string]float64)
	fields([]byte(report), func(n protowire.Number, entry []byte, number float64) {
		switch n {
		case 6:
			got["rps"] = number
		case 9:
			got["utilization"] = number
		case 8:
			var name string
			var value float64
			fields(entry, func(n protowire.Number, v []byte, number float64) {
				if n == 1 {
					name = string(v)
				} else {
					value = number
				}
			})
			got[name] = value
		default:
			require.Fail(t, "unexpected field", "%v", n)
		}
	})
	return got
}

// reports returns what the trailer of a call of "m" to the first server says; nil if there is none.
func reports(t *testing.T, f *Fleet) map[string]float64 {
	t.Helper()
	var trailer metadata.MD
	_, err := client(t, f, 0).Infer(testContext(t), NewRequest("m", 0), grpc.Trailer(&trailer))
	require.NoError(t, err)
	return reportIn(t, trailer)
}

func reportIn(t *testing.T, trailer metadata.MD) map[string]float64 {
	t.Helper()
	all := trailer.Get("endpoint-load-metrics-bin")
	if len(all) == 0 {
		return nil
	}
	require.Len(t, all, 1)
	return decode(t, all[0])
}

func TestORCA(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1, Slots: 4, Scale: 0.5, Signals: ORCA}), func(t *testing.T, f *Fleet) {
		s, c := f.Servers[0], client(t, f, 0)
		s.Preload("m")
		assert.Equal(t, map[string]float64{
			"rps": 0, "utilization": 0,
			"mlbalancer.active": 0, "mlbalancer.waiting": 0, "mlbalancer.workers": 4, "mlbalancer.connections": 0,
			"mlbalancer.gpu_memory_free": .75, "mlbalancer.queue_delay_seconds": 0, "mlbalancer.lane_free_seconds": 0,
			"mlbalancer.load_seconds": 2.5,
		}, reports(t, f))

		var calls sync.WaitGroup
		infer := func(model string, work time.Duration) {
			calls.Go(func() {
				_, err := c.Infer(t.Context(), NewRequest(model, work))
				assert.NoError(t, err)
			})
		}
		for range 6 {
			infer("m", 8*time.Second)
		}
		for _, cold := range []string{"a", "b", "b"} {
			infer(cold, 0)
			synctest.Wait()
		}
		time.Sleep(500 * time.Millisecond) // virtual; 1 s of model time
		s.Fail(codes.Internal, "now", 1)
		var trailer metadata.MD
		_, err := c.Infer(t.Context(), NewRequest("m", 0), grpc.Trailer(&trailer))
		require.Equal(t, codes.Internal, status.Code(err))
		got := reportIn(t, trailer)
		assert.InDelta(t, 1, got["utilization"], 1e-9, "four workers were busy for the last second")
		assert.Zero(t, got["mlbalancer.queue_delay_seconds"])
		assert.Equal(t, 6., got["mlbalancer.active"])
		assert.Equal(t, 2.+3, got["mlbalancer.waiting"], "for a worker, and for loads")
		assert.Equal(t, 9., got["mlbalancer.connections"])
		assert.Equal(t, .5, got["mlbalancer.gpu_memory_free"], "a model takes memory from the start of its load")
		assert.InDelta(t, 2.+2.5, got["mlbalancer.lane_free_seconds"], 1e-6, "the rest of one load, and another")
		s.Fail(codes.OK, "", 0)
		calls.Wait()
		got = reports(t, f)
		assert.Positive(t, got["rps"])
		assert.Zero(t, got["mlbalancer.active"])
		assert.Zero(t, got["mlbalancer.connections"])
		assert.Positive(t, got["mlbalancer.queue_delay_seconds"])
	})
}

func TestORCAOfAStream(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1, Signals: ORCA}), func(t *testing.T, f *Fleet) {
		c := client(t, f, 0)
		stream, err := c.StreamInfer(t.Context())
		require.NoError(t, err)
		require.NoError(t, stream.Send(NewRequest("m", 0)))
		_, err = stream.Recv()
		require.NoError(t, err)
		assert.Equal(t, 1., reports(t, f)["mlbalancer.connections"], "the stream, which has nothing in work")
		require.NoError(t, stream.CloseSend())
		_, err = stream.Recv()
		require.Error(t, err)
		got := reportIn(t, stream.Trailer())
		assert.Zero(t, got["mlbalancer.connections"])
		assert.Equal(t, .75, got["mlbalancer.gpu_memory_free"])
	})
}

func TestORCALies(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1, Signals: ORCA, Workers: 1}), func(t *testing.T, f *Fleet) {
		s, c := f.Servers[0], client(t, f, 0)
		s.Preload("m")
		go c.Infer(t.Context(), NewRequest("m", time.Minute))
		go c.Infer(t.Context(), NewRequest("n", 0))
		synctest.Wait()
		said := func() map[string]float64 {
			s.Fail(codes.Internal, "", 1)
			defer s.Fail(codes.OK, "", 0)
			var trailer metadata.MD
			_, err := c.Infer(t.Context(), NewRequest("m", 0), grpc.Trailer(&trailer))
			require.Error(t, err)
			return reportIn(t, trailer)
		}
		truth := said()
		assert.Equal(t, 1., truth["mlbalancer.active"])
		s.Lie(ORCA, Idle)
		got := said()
		for _, name := range []string{"active", "waiting", "connections", "queue_delay_seconds", "lane_free_seconds"} {
			assert.Zero(t, got["mlbalancer."+name], name)
		}
		s.Lie(ORCA, Busy)
		got = said()
		assert.Equal(t, 1., got["utilization"])
		assert.Equal(t, 8., got["mlbalancer.active"])
		assert.Equal(t, 7., got["mlbalancer.waiting"])
		assert.Equal(t, 50., got["mlbalancer.lane_free_seconds"])
		s.Lie(ORCA, Empty)
		got = said()
		assert.Equal(t, 1., got["mlbalancer.gpu_memory_free"])
		assert.Equal(t, 1., got["mlbalancer.active"])
		s.Lie(ORCA, Truth)
		assert.Equal(t, truth, said())
		assert.PanicsWithValue(t, "fleet: Lie(orca, 4): want Truth, Idle, Busy or Empty", func() { s.Lie(ORCA, Empty+1) })
	})
}
