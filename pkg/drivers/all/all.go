// Package all links every driver into a program: one import a driver, nothing else.
package all

import (
	_ "lockstep/pkg/drivers/rabbitmq" // RabbitMQ by AMQP 0.9.1
)
