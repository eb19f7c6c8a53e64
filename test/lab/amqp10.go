package main

import (
	"context"
	"fmt"

	"github.com/Azure/go-amqp"
)

// dialAMQP opens an AMQP 1.0 connection. It fails while a broker listens but does not serve yet.
func dialAMQP(ctx context.Context, port int) (*amqp.Conn, error) {
	return amqp.Dial(ctx, "amqp://"+loopback(port), &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
}

func answersAMQP(ctx context.Context, port int) error {
	conn, err := dialAMQP(ctx, port)
	if err != nil {
		return err
	}
	return conn.Close()
}

// askArtemis reads an attribute of an Artemis broker with a management request over AMQP. The response is JSON.
func askArtemis(ctx context.Context, port int, attribute string) (string, error) {
	conn, err := dialAMQP(ctx, port)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		return "", err
	}
	receiver, err := session.NewReceiver(ctx, "", &amqp.ReceiverOptions{DynamicAddress: true})
	if err != nil {
		return "", fmt.Errorf("receive answers: %w", err)
	}
	sender, err := session.NewSender(ctx, "activemq.management", nil)
	if err != nil {
		return "", fmt.Errorf("send questions: %w", err)
	}
	replyTo := receiver.Address()
	question := amqp.NewMessage(nil)
	question.Properties = &amqp.MessageProperties{ReplyTo: &replyTo}
	question.ApplicationProperties = map[string]any{"_AMQ_ResourceName": "broker", "_AMQ_Attribute": attribute}
	if err := sender.Send(ctx, question, nil); err != nil {
		return "", fmt.Errorf("request %s: %w", attribute, err)
	}
	answer, err := receiver.Receive(ctx, nil)
	if err != nil {
		return "", fmt.Errorf("request %s: %w", attribute, err)
	}
	text, ok := answer.Value.(string)
	if !ok {
		return "", fmt.Errorf("request %s: the answer is %v", attribute, answer.Value)
	}
	return text, nil
}
