package serve

import (
	"errors"
	"time"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
)

// calls are the prometheus interceptors.
type calls struct {
	unary  grpc.UnaryServerInterceptor
	stream grpc.StreamServerInterceptor
}

// callMetrics registers grpc_server_* once per registry: the services of one
// process share them, the grpc_service label keeps them apart. nil r: nil.
func callMetrics(r prometheus.Registerer) (*calls, error) {
	if r == nil {
		return nil, nil
	}
	m := grpcprom.NewServerMetrics(grpcprom.WithServerHandlingTimeHistogram(grpcprom.WithHistogramOpts(&prometheus.HistogramOpts{
		Name: "grpc_server_handling_seconds", Help: "Time from the first byte of a call to its status.",
		Buckets:                     []float64{.0005, .001, .0025, .005, .01, .025, .1, 1, 10},
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	})))
	if err := r.Register(m); err != nil {
		there, ok := errors.AsType[prometheus.AlreadyRegisteredError](err)
		if !ok {
			return nil, err
		}
		if m, ok = there.ExistingCollector.(*grpcprom.ServerMetrics); !ok {
			return nil, err
		}
	}
	return &calls{m.UnaryServerInterceptor(), m.StreamServerInterceptor()}, nil
}
