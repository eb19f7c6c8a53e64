// Package all links every driver into a program: one import a driver, nothing else.
package all

import (
	_ "example.org/lockstep/lockstep/pkg/drivers/activemq"   // ActiveMQ Classic by AMQP 1.0
	_ "example.org/lockstep/lockstep/pkg/drivers/artemis"    // Artemis by AMQP 1.0
	_ "example.org/lockstep/lockstep/pkg/drivers/eventstore" // EventStoreDB and KurrentDB by persistent subscriptions
	_ "example.org/lockstep/lockstep/pkg/drivers/kafka"      // Apache Kafka, by franz-go or kafka-go
	_ "example.org/lockstep/lockstep/pkg/drivers/loopback"   // in this process: reference, fake, and the floor of the harness
	_ "example.org/lockstep/lockstep/pkg/drivers/mongodb"    // MongoDB as a queue
	_ "example.org/lockstep/lockstep/pkg/drivers/nats"       // NATS JetStream
	_ "example.org/lockstep/lockstep/pkg/drivers/rabbitmq"   // RabbitMQ by AMQP 0.9.1
	_ "example.org/lockstep/lockstep/pkg/drivers/sqs"        // Amazon SQS, standard and FIFO
)
