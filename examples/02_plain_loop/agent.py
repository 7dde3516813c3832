"""A plain Python loop as an agent of Dromos: it works on a list line by line, and can be stopped and steered."""

import asyncio
import os

from dromos.client.adapter import Answer, serve

SERVER = os.environ.get("DROMOS_SERVER", "http://127.0.0.1:8321")
PACE = float(os.environ.get("PACE", "0.3"))  # seconds for one word


async def work(run):
    before = [message["role"] for message in run.progress]  # of an attempt that was cut off
    asked = [run.text, *(message["content"] for message in run.progress if message["role"] == "user")]
    items = [line.strip("-* ") for text in asked for line in text.splitlines() if line.strip()]
    at = before.count("assistant")
    run.box.plan = [
        {"title": item, "status": "done" if n < at else "pending"} for n, item in enumerate(items)
    ]
    try:
        while at < len(items):
            async for steer in run.steering():  # what the person sends meanwhile goes to the end of the list
                items.append(steer.text)
                run.box.plan_item(str(len(items)), title=steer.text)
            run.box.plan_item(str(at + 1), "active")
            run.box.line = f"{at + 1} of {len(items)}"
            with run.box.step(items[at], kind="step"):
                for word in items[at].split():
                    await asyncio.sleep(PACE)  # the work
                    await run.say(f"{word[::-1]} ")
            await run.message()  # stored for good: an attempt after this one goes on behind it
            at += 1
            run.box.plan_item(str(at), "done")
    finally:
        run.box.line = f"{at} of {len(items)} turned around"
    return Answer(f"Turned {at} lines around.", line=run.box.line)


if __name__ == "__main__":
    asyncio.run(serve(work, url=SERVER, agents=["plain"]))
