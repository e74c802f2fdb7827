// Command go_client publishes to Danube's gRPC interface with grpc-go.
//
// Each of some connections makes some calls at a time, one message each.  With -receive,
// the connections then receive the messages from one shared subscription, and each
// acknowledges one message after the other.
//
// It prints a line when the time that it measures begins, and then the rate, the times
// of calls and its own processor time as JSON.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	wire "google.golang.org/protobuf/encoding/protowire"
)

const (
	payloadBytes = 100
	subscription = "go-client"
)

// rawCodec sends and receives messages that are encoded already.
type rawCodec struct{}

func (rawCodec) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }

func (rawCodec) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = slices.Clone(data)
	return nil
}

func (rawCodec) Name() string { return "proto" }

func appendText(message []byte, field wire.Number, text string) []byte {
	return wire.AppendString(wire.AppendTag(message, field, wire.BytesType), text)
}

func appendNumber(message []byte, field wire.Number, number uint64) []byte {
	return wire.AppendVarint(wire.AppendTag(message, field, wire.VarintType), number)
}

// valueOf returns the encoded value of a field of a message, or nothing.
func valueOf(message []byte, wanted wire.Number) []byte {
	for len(message) > 0 {
		field, kind, size := wire.ConsumeTag(message)
		message = message[size:]
		size = wire.ConsumeFieldValue(field, kind, message)
		if field == wanted {
			return message[:size]
		}
		message = message[size:]
	}
	return nil
}

// numberOf returns the number in a field of a message, or 0.
func numberOf(message []byte, wanted wire.Number) uint64 {
	value := valueOf(message, wanted)
	if value == nil {
		return 0
	}
	number, _ := wire.ConsumeVarint(value)
	return number
}

func call(connection *grpc.ClientConn, method string, request []byte) []byte {
	var answer []byte
	path := "/danube." + method
	if err := connection.Invoke(context.Background(), path, &request, &answer); err != nil {
		log.Fatal(err)
	}
	return answer
}

// producer is one connection with one producer.
type producer struct {
	connection *grpc.ClientConn
	id         uint64
	name       string
	topic      string
}

func open(address, name, topic string) producer {
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	connection, err := grpc.NewClient(address, plain)
	if err != nil {
		log.Fatal(err)
	}
	request := appendText(appendText(nil, 2, name), 3, topic)
	// A reliable topic.
	request = appendNumber(request, 6, 1)
	id := numberOf(call(connection, "ProducerService/CreateProducer", request), 2)
	return producer{connection, id, name, topic}
}

// publish sends one message after the other until the end, and returns the times.
func (p producer) publish(end time.Time) (times []time.Duration) {
	payload := make([]byte, payloadBytes)
	for at := range payload {
		payload[at] = byte(at*37 + at*at)
	}
	id := appendText(appendNumber(nil, 1, p.id), 2, p.topic)
	for number := uint64(1); ; number++ {
		begun := time.Now()
		if begun.After(end) {
			return times
		}
		message := appendText(appendNumber(nil, 1, number), 2, string(id))
		message = appendText(message, 3, string(payload))
		message = appendNumber(message, 4, uint64(begun.UnixMilli()))
		call(p.connection, "ProducerService/SendMessage", appendText(message, 5, p.name))
		times = append(times, time.Since(begun))
	}
}

// consumer is one connection with one consumer of the shared subscription.
type consumer struct {
	connection *grpc.ClientConn
	id         uint64
}

func (p producer) subscribe() consumer {
	request := appendText(appendText(nil, 2, p.topic), 3, p.name)
	request = appendText(request, 4, subscription)
	// A shared subscription.
	request = appendNumber(request, 5, 1)
	answer := call(p.connection, "ConsumerService/Subscribe", request)
	return consumer{p.connection, numberOf(answer, 2)}
}

// receive acknowledges messages until none is left, and returns the times of the calls.
func (c consumer) receive(left *atomic.Int64, done context.Context, end func()) []time.Duration {
	var times []time.Duration
	description := grpc.StreamDesc{ServerStreams: true}
	path := "/danube.ConsumerService/ReceiveMessages"
	stream, err := c.connection.NewStream(done, &description, path)
	if err != nil {
		log.Fatal(err)
	}
	request := appendNumber(nil, 2, c.id)
	if err := stream.SendMsg(&request); err != nil {
		log.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		log.Fatal(err)
	}
	for {
		var message []byte
		if err := stream.RecvMsg(&message); err != nil {
			if done.Err() != nil {
				return times
			}
			log.Fatal(err)
		}
		begun := time.Now()
		id, _ := wire.ConsumeBytes(valueOf(message, 2))
		ack := appendText(appendNumber(nil, 1, numberOf(message, 1)), 2, string(id))
		call(c.connection, "ConsumerService/Ack", appendText(ack, 3, subscription))
		times = append(times, time.Since(begun))
		if left.Add(-1) == 0 {
			end()
		}
	}
}

func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		log.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func main() {
	address := flag.String("address", "127.0.0.1:6650", "the gRPC port of the broker")
	connections := flag.Int("connections", 64, "how many connections")
	calls := flag.Int("calls", 1, "how many calls at a time on each connection")
	seconds := flag.Float64("seconds", 3, "how long to publish")
	receives := flag.Bool("receive", false, "measure receiving what was published")
	flag.Parse()
	encoding.RegisterCodec(rawCodec{})
	topic := "/default/go-client"
	if *receives {
		topic = "/default/go-client-received"
	}
	var producers []producer
	var consumers []consumer
	for number := range *connections {
		each := open(*address, fmt.Sprintf("go-%d", number), topic)
		producers = append(producers, each)
		if *receives {
			// The subscription begins before what is published now.
			consumers = append(consumers, each.subscribe())
		}
	}
	publishing := func() []time.Duration {
		end := time.Now().Add(time.Duration(*seconds * float64(time.Second)))
		return together(producers, *calls, func(each producer) []time.Duration {
			return each.publish(end)
		})
	}
	if !*receives {
		measure(publishing)
		return
	}
	var left atomic.Int64
	left.Store(int64(len(publishing())))
	measure(func() []time.Duration {
		done, end := context.WithCancel(context.Background())
		return together(consumers, 1, func(each consumer) []time.Duration {
			return each.receive(&left, done, end)
		})
	})
}

// together runs work some times for each client at once, and returns all times.
func together[T any](clients []T, count int, work func(T) []time.Duration) []time.Duration {
	var lock sync.Mutex
	var running sync.WaitGroup
	var times []time.Duration
	for _, each := range clients {
		for range count {
			running.Add(1)
			go func() {
				defer running.Done()
				own := work(each)
				lock.Lock()
				defer lock.Unlock()
				times = append(times, own...)
			}()
		}
	}
	running.Wait()
	return times
}

// measure prints the figures of the calls whose times work returns.
func measure(work func() []time.Duration) {
	fmt.Println("begun")
	used, begun := processorTime(), time.Now()
	times := work()
	elapsed, used := time.Since(begun), processorTime()-used
	slices.Sort(times)
	err := json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"messages":  float64(len(times)),
		"rate":      float64(len(times)) / elapsed.Seconds(),
		"p50_us":    float64(times[len(times)/2].Microseconds()),
		"p99_us":    float64(times[len(times)*99/100].Microseconds()),
		"client_us": float64(used.Microseconds()) / float64(len(times)),
	})
	if err != nil {
		log.Fatal(err)
	}
}
