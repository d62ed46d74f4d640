# SPDX-License-Identifier: Apache-2.0
"""The long lists of class names, in code point order (capitals first): the position of a name is its label."""

_OFFICE_HOME = """
Alarm_Clock Backpack Batteries Bed Bike Bottle Bucket Calculator Calendar Candles Chair Clipboards Computer
Couch Curtains Desk_Lamp Drill Eraser Exit_Sign Fan File_Cabinet Flipflops Flowers Folder Fork Glasses Hammer
Helmet Kettle Keyboard Knives Lamp_Shade Laptop Marker Monitor Mop Mouse Mug Notebook Oven Pan Paper_Clip Pen
Pencil Postit_Notes Printer Push_Pin Radio Refrigerator Ruler Scissors Screwdriver Shelf Sink Sneakers Soda
Speaker Spoon TV Table Telephone ToothBrush Toys Trash_Can Webcam
"""
OFFICE_HOME: tuple[str, ...] = tuple(_OFFICE_HOME.split())
"""The 65 folders of each domain of Office-Home."""

_DOMAINNET = """
The_Eiffel_Tower The_Great_Wall_of_China The_Mona_Lisa aircraft_carrier airplane alarm_clock ambulance angel
animal_migration ant anvil apple arm asparagus axe backpack banana bandage barn baseball baseball_bat basket
basketball bat bathtub beach bear beard bed bee belt bench bicycle binoculars bird birthday_cake blackberry
blueberry book boomerang bottlecap bowtie bracelet brain bread bridge broccoli broom bucket bulldozer bus bush
butterfly cactus cake calculator calendar camel camera camouflage campfire candle cannon canoe car carrot castle
cat ceiling_fan cell_phone cello chair chandelier church circle clarinet clock cloud coffee_cup compass computer
cookie cooler couch cow crab crayon crocodile crown cruise_ship cup diamond dishwasher diving_board dog dolphin
donut door dragon dresser drill drums duck dumbbell ear elbow elephant envelope eraser eye eyeglasses face fan
feather fence finger fire_hydrant fireplace firetruck fish flamingo flashlight flip_flops floor_lamp flower
flying_saucer foot fork frog frying_pan garden garden_hose giraffe goatee golf_club grapes grass guitar
hamburger hammer hand harp hat headphones hedgehog helicopter helmet hexagon hockey_puck hockey_stick horse
hospital hot_air_balloon hot_dog hot_tub hourglass house house_plant hurricane ice_cream jacket jail kangaroo
key keyboard knee knife ladder lantern laptop leaf leg light_bulb lighter lighthouse lightning line lion
lipstick lobster lollipop mailbox map marker matches megaphone mermaid microphone microwave monkey moon mosquito
motorbike mountain mouse moustache mouth mug mushroom nail necklace nose ocean octagon octopus onion oven owl
paint_can paintbrush palm_tree panda pants paper_clip parachute parrot passport peanut pear peas pencil penguin
piano pickup_truck picture_frame pig pillow pineapple pizza pliers police_car pond pool popsicle postcard potato
power_outlet purse rabbit raccoon radio rain rainbow rake remote_control rhinoceros rifle river roller_coaster
rollerskates sailboat sandwich saw saxophone school_bus scissors scorpion screwdriver sea_turtle see_saw shark
sheep shoe shorts shovel sink skateboard skull skyscraper sleeping_bag smiley_face snail snake snorkel snowflake
snowman soccer_ball sock speedboat spider spoon spreadsheet square squiggle squirrel stairs star steak stereo
stethoscope stitches stop_sign stove strawberry streetlight string_bean submarine suitcase sun swan sweater
swing_set sword syringe t-shirt table teapot teddy-bear telephone television tennis_racquet tent tiger toaster
toe toilet tooth toothbrush toothpaste tornado tractor traffic_light train tree triangle trombone truck trumpet
umbrella underwear van vase violin washing_machine watermelon waterslide whale wheel windmill wine_bottle
wine_glass wristwatch yoga zebra zigzag
"""
DOMAINNET: tuple[str, ...] = tuple(_DOMAINNET.split())
"""The 345 folders of each domain of DomainNet; DomainNet's own lists number them in another order."""

_CIFAR_100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree
wolf woman worm
"""
CIFAR_100: tuple[str, ...] = tuple(_CIFAR_100.split())
"""The 100 fine classes of CIFAR-100, in the order of its labels."""
